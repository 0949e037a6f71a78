// The functions of <pentad/comm/network.hpp>.
#pragma once

#include <pentad/comm/network.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/observe/ledger.hpp>

#include <utility>

namespace pentad::comm {

PENTAD_INLINE Nodes::Nodes(std::vector<int> node_of, int rank)
    : node_of_(std::move(node_of)), mine_(node_of_[at(rank)]) {
    count_ = 1 + *std::max_element(node_of_.begin(), node_of_.end());
    elsewhere_ = node_of_.size() - at(static_cast<int>(std::count(node_of_.begin(), node_of_.end(), mine_)));
    each_ = static_cast<int>(node::ranks_per_node(node_of_));
    leads_ = std::find(node_of_.begin(), node_of_.end(), mine_) == node_of_.begin() + rank;
}

PENTAD_INLINE NetworkBytes two_level_network(Nodes const& nodes, int rank, node::Task const& task) {
    auto const k = static_cast<std::size_t>(nodes.each()), me = static_cast<std::size_t>(rank) % k;
    auto const others = static_cast<std::size_t>(nodes.count() - 1);
    auto const root = static_cast<std::size_t>(std::max(task.root, 0));
    std::size_t const share = detail::share_in_all_reduce(task.bytes, k), begin = std::min(me * share, task.bytes);
    switch (task.operation) {
    case observe::Operation::all_reduce:
        return {detail::sent_in_all_reduce(nodes.count(), nodes.mine(),
                                           static_cast<double>(std::min(share, task.bytes - begin))),
                nodes.count() > 2};
    case observe::Operation::reduce_scatter:
    case observe::Operation::all_gather:
        return {static_cast<double>(others * task.piece)};
    case observe::Operation::all_to_all:
        return {static_cast<double>(others * k * task.piece)};
    default: // broadcast
        if (root % k != me) return {};
        return {detail::sent_in_broadcast(nodes.count(), static_cast<int>(root / k), nodes.mine(),
                                          static_cast<double>(task.bytes)),
                nodes.count() > 2};
    }
}

PENTAD_INLINE NetworkBytes mpi_network(Nodes const& nodes, int ranks, int rank, node::Task const& task) {
    auto const bytes = static_cast<double>(task.bytes), piece = static_cast<double>(task.piece);
    double sent = 0;
    auto const add = [&](int to, double part) { sent += nodes.is_here(to) ? 0 : part; };
    switch (task.operation) {
    case observe::Operation::all_reduce: // as if there were no nodes
        detail::for_each_message_of_all_reduce(ranks, rank, bytes, add);
        return {sent, true};
    case observe::Operation::all_gather: // round a ring
        add((rank + 1) % ranks, piece * (ranks - 1));
        return {sent, true};
    case observe::Operation::reduce_scatter: // every rank sends a piece to every other
        return {piece * static_cast<double>(nodes.elsewhere()), true};
    case observe::Operation::all_to_all:
        if (task.sent.empty()) return {piece * static_cast<double>(nodes.elsewhere())};
        for (int to = 0; to < ranks; ++to)
            add(to, static_cast<double>(task.sent[static_cast<std::size_t>(to)]) * static_cast<double>(task.element));
        return {sent};
    default: // broadcast: among the first ranks of the nodes, but of more than a little among eight and more: all
        if (ranks >= 8 && bytes > detail::little)
            detail::for_each_message_of_broadcast(ranks, task.root, rank, bytes, add);
        else if (nodes.leads())
            sent = detail::sent_in_broadcast(nodes.count(), nodes.of(task.root), nodes.mine(), bytes);
        return {sent, true};
    }
}

} // namespace pentad::comm
