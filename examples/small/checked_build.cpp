// A checked build finds ranks that call different collectives: all of them are told who calls what, and go on. This is
// what -DPENTAD_CHECKED=ON does; without it the same program hangs or gives nonsense in other libraries.
//
// ranks: 3
#define PENTAD_CHECKED 1
#include <pentad/comm.hpp>
#include <pentad/layout.hpp>
#include <pentad/tensor.hpp>

#include <cstdio>
#include <string>

using namespace pentad;
using namespace pentad::ml;
using Exec = Kokkos::DefaultHostExecutionSpace;

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<tp>>(ranks));
    auto const& along_tp = communicators.along(AxisNames(tp::name));
    Exec const exec;
    bool is_told = false;
    try {
        // The last rank sums another number of elements.
        Kokkos::View<double*, Exec> const numbers("numbers", along_tp.rank() == ranks - 1 ? 7 : 8);
        comm::all_reduce(exec, along_tp, numbers);
    } catch (comm::Error const& error) {
        is_told = true;
        if (along_tp.rank() == 0) std::printf("%s\n", error.what());
    }
    // The group goes on.
    Kokkos::View<double*, Exec> const numbers("numbers", 8);
    Kokkos::deep_copy(numbers, 1.0);
    comm::all_reduce(exec, along_tp, numbers);
    return is_told && numbers(0) == ranks ? 0 : 1;
}
