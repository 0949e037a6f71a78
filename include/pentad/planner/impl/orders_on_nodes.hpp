// The functions of <pentad/planner/orders_on_nodes.hpp>.
#pragma once

#include <pentad/planner/orders_on_nodes.hpp>

#include <pentad/mesh/inline.hpp>

#include <array>
#include <cstddef>
#include <set>

namespace pentad::planner {

PENTAD_INLINE NodesOfGroups nodes_of(Strategy const& c, std::string_view axis, std::span<int const> node_of) {
    return detail::count_nodes(groups_along(c, axis),
                               [&](std::int64_t rank) { return node_of[static_cast<std::size_t>(rank)]; });
}

PENTAD_INLINE std::int64_t neighbours_on_nodes(Strategy const& c, std::string_view axis, std::span<int const> node_of) {
    auto const groups = groups_along(c, axis);
    auto const are_together = [&](std::int64_t neighbours) {
        auto const inner = groups.inner(neighbours);
        for (std::int64_t rank = 0; rank < groups.devices; ++rank) {
            std::int64_t const first = inner.member(rank, 0);
            if (node_of[static_cast<std::size_t>(rank)] != node_of[static_cast<std::size_t>(first)]) return false;
        }
        return true;
    };
    std::int64_t neighbours = groups.extent;
    while (groups.extent % neighbours != 0 || !are_together(neighbours)) --neighbours;
    return neighbours;
}

PENTAD_INLINE std::vector<Strategy> orders_on_nodes(Strategy const& given, std::int64_t per_node, bool has_experts) {
    using Each = std::array<std::int64_t, axis_order.size()>; // ranks of a group on a node
    auto const each_of = [per_node](Strategy const& c) {
        Each each{};
        for (std::size_t i = 0; i < each.size(); ++i)
            each[i] = nodes_of(groups_of_ranks(c, axis_order[i]), per_node).each;
        return each;
    };
    std::vector<Strategy> found{given};
    std::set<Each> seen{each_of(given)};
    auto c = given;
    std::sort(c.order.begin(), c.order.end());
    do {
        if (!c.has_views() || (has_experts && !c.groups_hold_experts())) continue;
        auto const each = each_of(c);
        if (std::count(each.begin(), each.end(), 0) == 0 && seen.insert(each).second) found.push_back(c);
    } while (std::next_permutation(c.order.begin(), c.order.end()));
    return found;
}

} // namespace pentad::planner
