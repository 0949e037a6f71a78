// Tensors and redistributions without JSON, random numbers or BLAS.
#include <pentad/comm.hpp>
#include <pentad/layout.hpp>
#include <pentad/tensor.hpp>

using namespace pentad;
using namespace pentad::ml;

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    Mesh<Axis<dp>> const mesh(1);
    comm::Communicators communicators(MPI_COMM_SELF, mesh);
    MeshContext const context(communicators, mesh);
    auto sum = make_tensor<Layout<f64, Dims<Dim<batch>>, Partial<dp>>>(context, {4});
    sum.clear();
    return redistribute<Layout<f64, Dims<Dim<batch>>>>(std::move(sum)).size() == 4 ? 0 : 1;
}
