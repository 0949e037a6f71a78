// This rank's place among all of the run, and among nodes that are none.
#pragma once

#include <mpi.h>

#include <cstdlib>
#include <string>

namespace support {

inline int world_rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}
inline int world_size() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

/// The sum of the ranks' values, or another reduction of them.
inline double over_ranks(double value, MPI_Op op = MPI_SUM) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
    return value;
}

/// Communicators that are made meanwhile take every so many ranks for a node.
struct SimulatedNodes {
    explicit SimulatedNodes(std::string const& ranks_per_node) {
        setenv("PENTAD_RANKS_PER_NODE", ranks_per_node.c_str(), 1);
    }
    SimulatedNodes(SimulatedNodes const&) = delete;
    SimulatedNodes& operator=(SimulatedNodes const&) = delete;
    ~SimulatedNodes() { unsetenv("PENTAD_RANKS_PER_NODE"); }
};

} // namespace support
