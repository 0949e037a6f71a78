// Run on 2 ranks: Pentad, Kokkos and MPI are there, and no warning flag of Pentad's came along.
#include <pentad/pentad.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
    int unused_variable_that_pentads_own_flags_would_refuse;
    MPI_Init(&argc, &argv);
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    {
        Kokkos::ScopeGuard const kokkos(argc, argv);
        std::printf("%d ranks, a bf16 has %zu bytes\n", size, sizeof(pentad::bf16));
    }
    MPI_Finalize();
    return size == 2 ? 0 : 1;
}
