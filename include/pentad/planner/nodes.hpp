// How the ranks along an axis lie on nodes, or on whatever joins as many neighbours.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/model/context_choice.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/strategy/strategy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace pentad::planner {

using namespace ml;

/// Ranks of a mesh that differ by multiples of `stride`, and where an axis is of two pieces, of `major_stride`: the
/// groups along the axis.
struct AxisGroups {
    std::int64_t stride = 1, extent = 1, devices = 1; ///< of all groups
    std::int64_t major_extent = 1, major_stride = 1;

    /// The groups of the first `ranks` neighbours.
    [[nodiscard]] AxisGroups inner(std::int64_t ranks) const {
        std::int64_t const minor = extent / major_extent;
        return {.stride = stride,
                .extent = ranks,
                .devices = devices,
                .major_extent = ranks > minor ? ranks / minor : 1,
                .major_stride = major_stride};
    }
    /// The member of a rank's group that stands at a place of it.
    [[nodiscard]] std::int64_t member(std::int64_t rank, std::int64_t place) const {
        std::int64_t const minor = extent / major_extent,
                           major = major_extent == 1 ? 0 : rank / major_stride % major_extent;
        return rank + (place % minor - rank / stride % minor) * stride + (place / minor - major) * major_stride;
    }
};
/// Along one of the axes of the ranks.
inline AxisGroups groups_of_ranks(Strategy const& c, std::string_view axis) {
    std::int64_t stride = 1;
    for (std::size_t i = c.order.size(); i-- > 0 && !is_same_axis(c.order[i], axis);) stride *= c.extent(c.order[i]);
    return {.stride = stride, .extent = c.extent(axis), .devices = c.devices()};
}
/// Along an axis of either view of the mesh: Strategy::views(), which take longer to make than to look up.
inline AxisGroups groups_along(model::ModelMesh const& views, std::string_view axis) {
    auto const along = find_axis(views.axes(), axis);
    return {.stride = along.stride,
            .extent = along.extent,
            .devices = views.size(),
            .major_extent = along.major_extent,
            .major_stride = along.major_stride};
}
inline AxisGroups groups_along(Strategy const& c, std::string_view axis) { return groups_along(c.views(), axis); }

struct NodesOfGroups {
    std::int64_t most = 1; ///< nodes that a group lies on
    std::int64_t each = 0; ///< ranks of a group on a node, where all groups have as many on all of their nodes; else 0
};

namespace detail {
/// The nodes of groups, counted rank by rank. @param node_of node_of(rank)
template <class NodeOf>
NodesOfGroups count_nodes(AxisGroups const& groups, NodeOf&& node_of) {
    NodesOfGroups result{.most = 1, .each = -1};
    std::vector<std::int64_t> nodes;
    for (std::int64_t first = 0; first < groups.devices; ++first) {
        if (groups.member(first, 0) != first) continue;
        nodes.clear();
        for (std::int64_t i = 0; i < groups.extent; ++i)
            nodes.push_back(static_cast<std::int64_t>(node_of(groups.member(first, i))));
        std::sort(nodes.begin(), nodes.end());
        std::int64_t different = 0;
        for (auto at = nodes.begin(); at != nodes.end(); ++different) {
            auto const next = std::upper_bound(at, nodes.end(), *at);
            auto const here = static_cast<std::int64_t>(next - at);
            if (result.each == -1) result.each = here;
            if (result.each != here) result.each = 0;
            at = next;
        }
        result.most = std::max(result.most, different);
    }
    return result;
}
} // namespace detail

/// The groups on nodes of as many neighbours.
NodesOfGroups nodes_of(AxisGroups const& groups, std::int64_t per_node);
inline NodesOfGroups nodes_of(Strategy const& c, std::string_view axis, std::int64_t per_node) {
    return nodes_of(groups_along(c, axis), per_node);
}

/// The nodes to which dispatch takes a token once each; 1: it goes in one exchange over ep, as on one node, for tokens
/// of one choice, and where nodes have different numbers of the ranks of a group (experts/dispatch.hpp). Training
/// decides for each group; where groups differ, all are planned in one exchange.
std::int64_t dispatch_nodes(Model const& model, AxisGroups const& groups, std::int64_t per_node);
inline std::int64_t dispatch_nodes(Model const& model, Strategy const& c, std::int64_t per_node) {
    return dispatch_nodes(model, groups_along(c, ep::name), per_node);
}
/// Calls f(configuration) for every order of the axes with more than one rank on which the experts' axes lie.
template <class F>
void for_each_order(Strategy const& c, F&& f) {
    std::vector<std::string_view> moved;
    for (auto const axis : axis_order)
        if (c.extent(axis) > 1) moved.push_back(axis);
    std::sort(moved.begin(), moved.end());
    auto ordered = c;
    do {
        std::size_t next = 0;
        for (auto const axis : axis_order)
            if (c.extent(axis) == 1) ordered.order[next++] = axis;
        for (auto const axis : moved) ordered.order[next++] = axis;
        if (ordered.has_views()) f(ordered);
    } while (std::next_permutation(moved.begin(), moved.end()));
}
/// The values of f(groups along an axis) over all orders of the axes, in ascending order.
template <class F>
std::vector<std::int64_t> in_any_order(Strategy const& c, std::string_view axis, F&& f) {
    std::vector<std::int64_t> found;
    for_each_order(c, [&](Strategy const& ordered) { found.push_back(f(groups_along(ordered, axis))); });
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}
std::vector<std::int64_t> dispatch_nodes_in_any_order(Model const& model, Strategy const& c, std::int64_t per_node);

/// The ways of attention over cp that a choice leaves open on a mesh: where it does not say how cp is split, inner(cp)
/// are the ranks of cp that a node holds in some order of the axes.
std::vector<model::ContextSplit> context_splits(model::ContextChoice const& asked, Model const& model,
                                                Strategy const& c, std::int64_t per_node);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/nodes.hpp>
#endif
