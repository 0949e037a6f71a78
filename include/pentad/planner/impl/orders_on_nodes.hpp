// The functions of <pentad/planner/orders_on_nodes.hpp>.
#pragma once

#include <pentad/planner/orders_on_nodes.hpp>

#include <pentad/mesh/inline.hpp>

#include <array>
#include <cstddef>
#include <set>

namespace pentad::planner {

PENTAD_INLINE NodesOfGroups nodes_of(Configuration const& c, std::string_view axis, std::span<int const> node_of) {
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

PENTAD_INLINE std::int64_t neighbours_on_nodes(Configuration const& c, std::string_view axis,
                                               std::span<int const> node_of) {
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

PENTAD_INLINE std::vector<Configuration> orders_on_nodes(Configuration const& given, std::int64_t per_node) {
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

} // namespace pentad::planner
