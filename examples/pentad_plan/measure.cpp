#include "measure.hpp"

#include <pentad/comm/error.hpp>
#include <pentad/comm/threads.hpp>
#include <pentad/train/machine.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

namespace pentad_plan {

struct Measurement::Libraries {
    pentad::comm::Environment mpi;
    Kokkos::ScopeGuard kokkos;

    Libraries(int& argc, char**& argv) : mpi(argc, argv), kokkos(pentad::comm::kokkos_settings()) {}
};

Measurement::Measurement(int& argc, char**& argv) : libraries_(std::make_unique<Libraries>(argc, argv)) {}
Measurement::~Measurement() = default;

bool Measurement::is_first() const {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank == 0;
}

pentad::planner::Hardware Measurement::any() const {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return {.name = "any", .devices = ranks, .devices_per_node = ranks};
}

pentad::planner::Hardware Measurement::machine() const {
    return pentad::train::measured_machine(Kokkos::DefaultExecutionSpace());
}

} // namespace pentad_plan
