// A collective that goes on beside a computation: started, and waited for when its result is needed.
//
// ranks: 2
#include <pentad/comm.hpp>
#include <pentad/kernels.hpp>
#include <pentad/layout.hpp>
#include <pentad/tensor.hpp>

#include <cstdio>

using namespace pentad;
using namespace pentad::ml;
using Exec = Kokkos::DefaultHostExecutionSpace;

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(ranks));
    Context<Exec> const context(communicators);
    auto const& along_dp = communicators.along(AxisNames(dp::name));

    Kokkos::View<float*, Exec> const gradient("gradient", 1 << 20);
    Kokkos::deep_copy(gradient, 1.0F);
    auto request = comm::start_all_reduce(context.exec(), along_dp, gradient);

    // The gradient belongs to the collective until wait(); other data may be worked on.
    Kokkos::View<float**, Kokkos::LayoutRight, Exec> const a("a", 512, 512), b("b", 512, 512), c("c", 512, 512);
    Kokkos::deep_copy(a, 1.0F);
    Kokkos::deep_copy(b, 2.0F);
    kernels::gemm(context.exec(), kernels::Transpose::no, kernels::Transpose::no, 1.0, a, b, 0.0, c);
    context.exec().fence();

    request.wait();
    if (along_dp.rank() == 0)
        std::printf("the sum is %g, the product %g\n", static_cast<double>(gradient(0)), static_cast<double>(c(0, 0)));
    return gradient(0) == static_cast<float>(ranks) && c(0, 0) == 1024 ? 0 : 1;
}
