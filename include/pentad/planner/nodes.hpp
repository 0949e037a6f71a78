// How the ranks along an axis lie on nodes, or on whatever joins as many neighbours.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/model/context_choice.hpp>
#include <pentad/planner/configuration.hpp>
#include <pentad/planner/model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace pentad::planner {

using namespace ml;

/// Ranks of a mesh that differ by multiples of `stride` below stride x extent: the groups along an axis.
struct AxisGroups {
    std::int64_t stride = 1, extent = 1, devices = 1; ///< of all groups
};
inline AxisGroups groups_along(Configuration const& c, std::string_view axis) {
    std::int64_t stride = 1;
    for (std::size_t i = c.order.size(); i-- > 0 && !is_same_axis(c.order[i], axis);) stride *= c.extent(c.order[i]);
    return {.stride = stride, .extent = c.extent(axis), .devices = c.devices()};
}

struct NodesOfGroups {
    std::int64_t most = 1; ///< nodes that a group lies on
    std::int64_t each = 0; ///< ranks of a group on a node, where all groups have as many on all of their nodes; else 0
};

/// The groups on nodes of as many neighbours.
NodesOfGroups nodes_of(AxisGroups const& groups, std::int64_t per_node);
inline NodesOfGroups nodes_of(Configuration const& c, std::string_view axis, std::int64_t per_node) {
    return nodes_of(groups_along(c, axis), per_node);
}

/// The nodes to which dispatch takes a token once each; 1: it goes in one exchange over ep, as on one node, for tokens
/// of one choice, and where nodes have different numbers of the ranks of a group (experts/dispatch.hpp). Training
/// decides for each group; where groups differ, all are planned in one exchange.
std::int64_t dispatch_nodes(Model const& model, AxisGroups const& groups, std::int64_t per_node);
inline std::int64_t dispatch_nodes(Model const& model, Configuration const& c, std::int64_t per_node) {
    bool const is_whole = c.expert_sharding == model::ExpertSharding::whole;
    if (is_whole && nodes_of(groups_along(c, tp::name), per_node).each != c.tp) return 1; // no node has all of tp
    return dispatch_nodes(model, groups_along(c, ep::name), per_node);
}
/// The values of f(groups along an axis) over all orders of the axes, in ascending order.
template <class F>
std::vector<std::int64_t> in_any_order(Configuration const& c, std::string_view axis, F&& f) {
    std::vector<std::int64_t> strides{1};
    for (auto const other : axis_order) {
        if (is_same_axis(other, axis)) continue;
        for (std::size_t i = strides.size(); i-- > 0;) strides.push_back(strides[i] * c.extent(other));
    }
    std::vector<std::int64_t> found;
    for (auto const stride : strides)
        found.push_back(f(AxisGroups{.stride = stride, .extent = c.extent(axis), .devices = c.devices()}));
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}
std::vector<std::int64_t> dispatch_nodes_in_any_order(Model const& model, Configuration const& c,
                                                      std::int64_t per_node);

/// The ways of attention over cp that a choice leaves open on a mesh: where it does not say how cp is split, inner(cp)
/// are the ranks of cp that a node holds in some order of the axes.
std::vector<model::ContextSplit> context_splits(model::ContextChoice const& asked, Model const& model,
                                                Configuration const& c, std::int64_t per_node);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/nodes.hpp>
#endif
