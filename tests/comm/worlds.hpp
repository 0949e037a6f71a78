// What the tests of collectives over all ranks share: the ranks of the world along dp, on one node or on several that
// are simulated.
#pragma once

#include "comm/groups.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/context.hpp>

#include <support/world.hpp>

#include <mpi.h>

#include <cstddef>
#include <string>

namespace comm_tests {

/// All ranks of the world, along dp.
struct World {
    comm::Communicators communicators{MPI_COMM_WORLD, Mesh<Axis<dp>>(world_size())};
    Context<Exec> context{communicators};
    comm::Communicator const& comm = communicators.along(AxisNames("dp"));
    std::size_t n = static_cast<std::size_t>(world_size()), me = static_cast<std::size_t>(comm.rank());
};

/// All ranks of the world, where this one says that a node has so many.
inline World simulated(std::string const& ranks_per_node) {
    support::SimulatedNodes const nodes(ranks_per_node);
    return {};
}

/// What an operation says when it throws.
template <class F>
std::string message(F&& f) {
    try {
        f();
    } catch (comm::Error const& error) {
        return error.what();
    }
    return "nothing";
}

} // namespace comm_tests
