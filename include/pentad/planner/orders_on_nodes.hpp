// How a mesh lies on the nodes of a cluster, and which order of its axes sends least between them.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/configuration.hpp>
#include <pentad/planner/nodes.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::planner {

/// What the ranks of each node send to other nodes in a step.
struct NodeTraffic {
    std::vector<PerAxis> bytes; ///< of each node
    bool is_modelled = false;   ///< part of it is what a model of the MPI library's algorithms says

    /// Of the node that sends most.
    [[nodiscard]] double most() const {
        double most = 0;
        for (auto const& node : bytes) most = std::max(most, node.total());
        return most;
    }
};

/// The groups along an axis, where node_of names the node of each rank.
inline NodesOfGroups nodes_of(Configuration const& c, std::string_view axis, std::span<int const> node_of) {
    auto const [stride, extent, devices] = groups_along(c, axis);
    NodesOfGroups result{.most = 1, .each = -1};
    for (std::int64_t first = 0; first < devices; ++first) {
        if (first / stride % extent != 0) continue;
        std::vector<int> nodes;
        for (std::int64_t i = 0; i < extent; ++i)
            nodes.push_back(node_of[static_cast<std::size_t>(first + i * stride)]);
        std::set<int> const different(nodes.begin(), nodes.end());
        result.most = std::max(result.most, static_cast<std::int64_t>(different.size()));
        for (int const node : different) {
            auto const here = std::count(nodes.begin(), nodes.end(), node);
            if (result.each == -1) result.each = here;
            if (result.each != here) result.each = 0;
        }
    }
    return result;
}

/// The most neighbours along an axis into which all of its groups can be cut so that each of the cuts lies on one node.
inline std::int64_t neighbours_on_nodes(Configuration const& c, std::string_view axis, std::span<int const> node_of) {
    auto const [stride, extent, devices] = groups_along(c, axis);
    auto const are_together = [&](std::int64_t neighbours) {
        for (std::int64_t rank = 0; rank < devices; ++rank) {
            std::int64_t const first = rank - rank / stride % neighbours * stride;
            if (node_of[static_cast<std::size_t>(rank)] != node_of[static_cast<std::size_t>(first)]) return false;
        }
        return true;
    };
    std::int64_t neighbours = extent;
    while (extent % neighbours != 0 || !are_together(neighbours)) --neighbours;
    return neighbours;
}

/// The given order of the axes, and others that leave nodes whole: in which every group along an axis has as many ranks
/// on each of its nodes. Of orders that put as many ranks of each axis on a node, one: they send the same.
inline std::vector<Configuration> orders_on_nodes(Configuration const& given, std::int64_t per_node) {
    using Each = std::array<std::int64_t, axis_order.size()>; // ranks of a group on a node
    auto const each_of = [per_node](Configuration const& c) {
        Each each{};
        for (std::size_t i = 0; i < each.size(); ++i) each[i] = nodes_of(c, axis_order[i], per_node).each;
        return each;
    };
    std::vector<Configuration> found{given};
    std::set<Each> seen{each_of(given)};
    auto c = given;
    std::sort(c.order.begin(), c.order.end());
    do {
        auto const each = each_of(c);
        if (std::count(each.begin(), each.end(), 0) == 0 && seen.insert(each).second) found.push_back(c);
    } while (std::next_permutation(c.order.begin(), c.order.end()));
    return found;
}

/// A mesh, and what it sends.
struct OrderOnNodes {
    Configuration mesh; ///< its extents and their order
    NodeTraffic traffic;
};
/// The given order, and the one to take instead, which is the given one unless another sends clearly less.
struct OrdersOnNodes {
    OrderOnNodes given, best;
};

/// The order in which the node that sends most sends least, where that is less than 0.99 of what it sends in the given
/// one.
/// @param per_node ranks of each node, which follow each other; 0: it is otherwise, and no other order is looked at
/// @param traffic_of traffic_of(configuration) is the NodeTraffic of an order
template <class TrafficOf>
OrdersOnNodes least_traffic(Configuration const& given, std::int64_t per_node, TrafficOf&& traffic_of) {
    OrdersOnNodes result;
    result.given = result.best = {given, traffic_of(given)};
    double least = 0.99 * result.given.traffic.most();
    if (per_node == 0) return result;
    for (auto const& order : orders_on_nodes(given, per_node)) {
        if (order.order == given.order) continue;
        auto traffic = traffic_of(order);
        if (traffic.most() >= least) continue;
        least = traffic.most();
        result.best = {order, std::move(traffic)};
    }
    return result;
}

} // namespace pentad::planner
