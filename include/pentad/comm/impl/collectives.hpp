// The functions of <pentad/comm/collectives.hpp>.
#pragma once

#include <pentad/comm/collectives.hpp>

#include <pentad/comm/choice.hpp>
#include <pentad/comm/detail/mpi_collective.hpp>
#include <pentad/mesh/inline.hpp>

namespace pentad::comm::detail {

/// Whether the MPI library is to carry out a task.
PENTAD_INLINE bool is_for_mpi(Communicator const& comm, node::Task const& task) {
    if (task.reduces() && 64 % task.element != 0)
        return true;                            // the library's own algorithms divide sums at cache lines
    bool const is_counted = !task.sent.empty(); // then ranks know different numbers of bytes
    auto const forced = forced_algorithm();
    if (forced == Algorithm::mpi || (comm.crosses_network() && (!comm.has_levels() || is_counted))) return true;
    return forced == Algorithm::automatic && !is_counted && comm.takes_mpi(task.operation, task.bytes);
}

PENTAD_INLINE Pending* begin(Form form, Communicator const& comm, node::Task task, MPI_Datatype type, MPI_Op sum) {
    task.is_awaited = form == Form::block && !turns().is_on();
    auto const forced = forced_algorithm();
    if (forced == Algorithm::mailbox) task.access = node::Access::mailboxes;
    if (forced == Algorithm::process) task.access = node::Access::processes;
    if (auto* const group = comm.node()) return &progress().begin<node::Exchange>(*group, task);
    return &progress().begin<TwoLevel>(*comm.levels(), task, type, sum);
}

PENTAD_INLINE void carry_out(UnderWay& under_way, bool is_reachable, Form form, Communicator const& comm,
                             node::Task const& task, MPI_Datatype type, MPI_Op sum, Cost const& cost, bool modelled) {
    bool const by_mpi = !is_reachable || is_for_mpi(comm, task);
    auto const network = network_of(comm, task, by_mpi);
    if (auto* const dry = observe::dry_run())
        return dry->exchange(task.operation, cost, comm.size(), form == Form::start, network.bytes, network.modelled);
    MpiCollective const mpi(comm, task, type, sum);
    under_way.run(
        form,
        {.operation = task.operation,
         .type = task.type,
         .count = task.sent.empty() ? task.bytes / task.element : 0,
         .root = task.root,
         .is_started = form == Form::start,
         .sent = task.sent,
         .received = task.received},
        task.bytes, [=, &comm] { return by_mpi ? nullptr : begin(form, comm, task, type, sum); }, mpi.name(), mpi);
    comm.ledger().record(task.operation, cost, modelled && by_mpi, network.bytes, network.modelled);
}

} // namespace pentad::comm::detail
