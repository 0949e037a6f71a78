// The functions of <pentad/planner/nodes.hpp>.
#pragma once

#include <pentad/planner/nodes.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/model/sharding.hpp>

#include <numeric>
#include <utility>

namespace pentad::planner {

PENTAD_INLINE NodesOfGroups nodes_of(AxisGroups const& groups, std::int64_t per_node) {
    std::int64_t const stride = groups.stride, extent = groups.extent, devices = groups.devices, span = stride * extent;
    if (groups.major_extent > 1) {
        AxisGroups outer{.stride = groups.major_stride, .extent = groups.major_extent, .devices = devices},
            inner = groups.inner(extent / groups.major_extent);
        if (outer.stride < inner.stride) std::swap(inner, outer);
        if (devices <= per_node || per_node % (outer.stride * outer.extent) == 0) return {.most = 1, .each = extent};
        if (outer.stride % per_node != 0) {
            auto counted = groups; // groups and nodes repeat
            std::int64_t const period = std::lcm(outer.stride * outer.extent, per_node);
            if (devices % period == 0) counted.devices = period;
            return detail::count_nodes(counted, [&](std::int64_t rank) { return rank / per_node; });
        }
        auto nodes = nodes_of(inner, per_node); // of each piece, which lie on other nodes
        nodes.most *= outer.extent;
        return nodes;
    }
    if (extent == 1 || devices <= per_node || per_node % span == 0) return {.most = 1, .each = extent};
    if (stride >= per_node) return {.most = extent, .each = 1};
    if (span % per_node == 0 && per_node % stride == 0) return {.most = span / per_node, .each = per_node / stride};
    // Nodes end elsewhere in each group, but repeat.
    NodesOfGroups result{.most = 1, .each = -1};
    std::int64_t const different = std::min(devices / span, per_node / std::gcd(span, per_node));
    for (std::int64_t group = 0; group < different; ++group)
        for (std::int64_t offset = 0; offset < stride; ++offset) {
            std::int64_t const last = group * span + offset + (extent - 1) * stride;
            std::int64_t nodes = 0;
            for (std::int64_t rank = group * span + offset; rank <= last; ++nodes) {
                std::int64_t const left = std::min((rank / per_node + 1) * per_node - 1, last) - rank;
                std::int64_t const here = left / stride + 1;
                if (result.each == -1) result.each = here;
                if (result.each != here) result.each = 0;
                rank += here * stride;
            }
            result.most = std::max(result.most, nodes);
        }
    return result;
}

PENTAD_INLINE std::int64_t dispatch_nodes(Model const& model, AxisGroups const& groups, std::int64_t per_node) {
    auto const* experts = model.experts();
    if (groups.extent == 1 || experts == nullptr || experts->top_k < 2) return 1;
    auto const each = nodes_of(groups, per_node).each;
    return each == 0 ? 1 : groups.extent / each;
}

PENTAD_INLINE std::vector<std::int64_t> dispatch_nodes_in_any_order(Model const& model, Strategy const& c,
                                                                    std::int64_t per_node) {
    return in_any_order(c, ep::name, [&](AxisGroups const& groups) { return dispatch_nodes(model, groups, per_node); });
}

PENTAD_INLINE std::vector<model::ContextSplit> context_splits(model::ContextChoice const& asked, Model const& model,
                                                              Strategy const& c, std::int64_t per_node) {
    auto const heads = model::query_heads(model.description(), c.ranks_of_heads());
    if (c.cp == 1 || heads == 0) return {{}};
    auto const insides =
        in_any_order(c, cp::name, [&](AxisGroups const& groups) { return nodes_of(groups, per_node).each; });
    return model::context_splits(asked, c.cp, heads, insides);
}

} // namespace pentad::planner
