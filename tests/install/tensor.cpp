// Tensors, redistributions and products on all ranks, without JSON, random numbers or BLAS.
#include <pentad/comm.hpp>
#include <pentad/layout.hpp>
#include <pentad/product.hpp>
#include <pentad/program.hpp>
#include <pentad/tensor.hpp>

using namespace pentad;
using namespace pentad::ml;

int main(int argc, char** argv) {
    return program::run_on_ranks("outside", argc, argv, [&](program::Ranks&) {
        Kokkos::ScopeGuard const kokkos(argc, argv);
        Mesh<Axis<dp>> const mesh(1);
        comm::Communicators communicators(MPI_COMM_SELF, mesh);
        MeshContext const context(communicators, mesh);
        using Matrix = Layout<f64, Dims<Dim<batch>, Dim<hidden>>>;
        auto sum = make_tensor<Layout<f64, Dims<Dim<batch>, Dim<hidden>>, Partial<dp>>>(context, {2, 2});
        Kokkos::deep_copy(sum.summands(), 3.0);
        auto const ones = redistribute<Matrix>(std::move(sum));
        auto const product = multiply<Layout<f64, Dims<Dim<batch>, Dim<ffn>>>>(
            ones, ones.as<Layout<f64, Dims<Dim<hidden>, Dim<ffn>>>>());
        double entries[4];
        product.get(entries);
        return entries[3] == 18 ? program::done : program::internal_error;
    });
}
