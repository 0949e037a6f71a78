#include "ranks.hpp"

#include "command_line.hpp"

#include <pentad/comm/error.hpp>
#include <pentad/comm/threads.hpp>
#include <pentad/train/machine.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

namespace pentad_plan {

struct Ranks::Library {
    pentad::comm::Environment mpi;
};

Ranks::Ranks(int& argc, char**& argv) : library_(new Library{{argc, argv}}) {}
Ranks::~Ranks() = default;

bool Ranks::are_launched() {
    // Of MPICH and what follows its PMI, Open MPI and PMIx, and Cray's PALS.
    static constexpr std::array names{"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PALS_RANKID"};
    return std::any_of(names.begin(), names.end(), [](char const* name) { return std::getenv(name) != nullptr; });
}

bool Ranks::is_first() const {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank == 0;
}

int Ranks::of_first(int value) const {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), done == 0;)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return value;
}

pentad::planner::Hardware Ranks::any() const {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return {.name = "any", .devices = ranks, .devices_per_node = ranks};
}

pentad::planner::Hardware Ranks::machine() const {
    try {
        Kokkos::ScopeGuard const kokkos(pentad::comm::kokkos_settings());
        return pentad::train::measured_machine(Kokkos::DefaultExecutionSpace());
    } catch (std::exception const& error) { // the others may wait for this rank
        std::fprintf(stderr, "pentad_plan: %s\n", command_line::one_line(error.what()).c_str());
        MPI_Abort(MPI_COMM_WORLD, 1);
        throw;
    }
}

} // namespace pentad_plan
