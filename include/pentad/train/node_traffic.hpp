// What the nodes of a cluster will send to each other in a step, before it runs.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/planner/orders_on_nodes.hpp>

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace pentad::train {

/// The bytes that the ranks of each node send to other nodes in a step on `mesh`, by axis: those that the ledger counts
/// in such a step (observe::LedgerEntry::network_bytes), from a dry run of each rank. Experts are taken to be chosen
/// evenly. Collective over the ranks of `real`, and the same on all.
/// @param real the communicators of any mesh of these ranks: their nodes and their tuning count
/// @param make make(communicators) is a trainer on `mesh`, whose step(number) carries out a step
/// @param local_steps from one average to the next, of which a step takes its share: the trainer's steps have none, and
/// average() is one; 0: there are none
template <MeshOfRanks M, class Make>
planner::NodeTraffic node_traffic(comm::Communicators const& real, M const& mesh, Make&& make, int local_steps = 0) {
    auto const& nodes = real.world().nodes();
    constexpr std::size_t axes = view_axes.size(), stride = axes + 1;
    std::vector<double> all(stride * static_cast<std::size_t>(nodes.count()), 0.0); // by node: each axis, is_modelled
    double* const own = all.data() + stride * static_cast<std::size_t>(nodes.mine());
    {
        observe::DryRun run;
        comm::Communicators communicators(mesh, real);
        auto const trainer = make(communicators);
        trainer->step(1); // begins with the weights as they were made
        run.clear();
        trainer->step(2);
        auto const add = [&](double part) {
            for (std::size_t i = 0; i < axes; ++i) {
                own[i] += part * observe::ledger().network_bytes(view_axes[i]);
                for (std::size_t k = 0; k < observe::operation_names.size(); ++k)
                    if (observe::ledger().entry(view_axes[i], static_cast<observe::Operation>(k)).network_modelled)
                        own[axes] = 1;
            }
        };
        add(1);
        if (local_steps > 0) {
            run.clear();
            trainer->average();
            add(1.0 / local_steps);
        }
    }
    auto const handle = real.world().handle();
    auto const count = static_cast<int>(all.size());
    std::vector<double> sums(all.size());
    comm::check(MPI_Reduce(all.data(), sums.data(), count, MPI_DOUBLE, MPI_SUM, 0, handle), "MPI_Reduce");
    comm::check(MPI_Bcast(sums.data(), count, MPI_DOUBLE, 0, handle), "MPI_Bcast"); // the same bits on all ranks
    planner::NodeTraffic traffic;
    for (std::size_t node = 0; node < static_cast<std::size_t>(nodes.count()); ++node) {
        auto& bytes = traffic.bytes.emplace_back();
        for (std::size_t i = 0; i < axes; ++i) bytes.of[i] = sums[node * stride + i];
        traffic.is_modelled = traffic.is_modelled || sums[node * stride + axes] > 0;
    }
    return traffic;
}

} // namespace pentad::train
