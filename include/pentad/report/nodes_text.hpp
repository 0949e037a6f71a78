// How a mesh lies on the nodes of a cluster, for people.
#pragma once

#include <pentad/planner/orders_on_nodes.hpp>
#include <pentad/report/format.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <string>

namespace pentad::report {

namespace detail {

/// "1.50 MiB", or where nodes differ "1.20 to 1.50 MiB". @param of of(bytes of a node)
template <class Of>
std::string bytes_of_nodes(planner::NodeTraffic const& traffic, Of&& of) {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (auto const& node : traffic.bytes) {
        least = std::min(least, of(node));
        most = std::max(most, of(node));
    }
    auto const from = bytes(least), to = bytes(most);
    return from == to ? to : from + " to " + to;
}
inline std::string total_of_nodes(planner::NodeTraffic const& traffic) {
    return bytes_of_nodes(traffic, [](planner::PerAxis const& node) { return node.total(); });
}
} // namespace detail

/// A mesh on several nodes: which axes stay within one and which cross the network, and what each node sends there in a
/// step. Lines, each with its end.
/// @param node_of the node of each rank @param has_experts whether the model has experts
std::string nodes_text(planner::OrderOnNodes const& order, std::span<int const> node_of, bool has_experts);

/// What there is to say of another order of the axes: where the given one is kept that it would send less, where it is
/// taken how much less; or nothing.
std::string order_remark(planner::OrdersOnNodes const& orders, bool is_taken);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/nodes_text.hpp>
#endif
