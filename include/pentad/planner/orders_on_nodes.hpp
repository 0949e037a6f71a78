// How a mesh lies on the nodes of a cluster, and which order of its axes sends least between them.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/nodes.hpp>
#include <pentad/strategy/strategy.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::planner {

/// What the ranks of each node send to other nodes in a step.
struct NodeTraffic {
    std::vector<PerAxis> bytes; ///< of each node
    bool is_modelled = false;   ///< part of it is what a model of the MPI library's algorithms says

    /// Bytes of the node that sends most.
    [[nodiscard]] double most() const {
        double most = 0;
        for (auto const& node : bytes) most = std::max(most, node.total());
        return most;
    }
};

/// The groups along an axis, where node_of names the node of each rank.
NodesOfGroups nodes_of(Strategy const& c, std::string_view axis, std::span<int const> node_of);

/// The most neighbours along an axis into which all of its groups can be cut so that each of the cuts lies on one node.
std::int64_t neighbours_on_nodes(Strategy const& c, std::string_view axis, std::span<int const> node_of);

/// The given order of the axes, and others that leave nodes whole: in which every group along an axis has as many ranks
/// on each of its nodes. Orders that put equal numbers of ranks of each axis on a node send the same, and one of them
/// is returned.
std::vector<Strategy> orders_on_nodes(Strategy const& given, std::int64_t per_node, bool has_experts);

/// A mesh, and what it sends.
struct OrderOnNodes {
    Strategy mesh; ///< its extents and their order
    NodeTraffic traffic;
};
/// The given order, and the one to take instead, which is the given one unless another sends clearly less.
struct OrdersOnNodes {
    OrderOnNodes given, best;
};

/// The order in which the node that sends most sends least, where that is less than 0.99 of what it sends in the given
/// one.
/// @param per_node ranks of each node, which follow each other; 0: it is otherwise, and no other order is looked at
/// @param has_experts whether the model has experts
/// @param traffic_of traffic_of(configuration) is the NodeTraffic of an order
template <class TrafficOf>
OrdersOnNodes least_traffic(Strategy const& given, std::int64_t per_node, bool has_experts, TrafficOf&& traffic_of) {
    OrdersOnNodes result;
    result.given = result.best = {given, traffic_of(given)};
    double least = 0.99 * result.given.traffic.most();
    if (per_node == 0) return result;
    for (auto const& order : orders_on_nodes(given, per_node, has_experts)) {
        if (order.order == given.order) continue;
        auto traffic = traffic_of(order);
        if (traffic.most() >= least) continue;
        least = traffic.most();
        result.best = {order, std::move(traffic)};
    }
    return result;
}

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/orders_on_nodes.hpp>
#endif
