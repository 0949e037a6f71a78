// The functions of <pentad/report/nodes_text.hpp>.
#pragma once

#include <pentad/report/nodes_text.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/report/plan_text.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace pentad::report {

PENTAD_INLINE std::string nodes_text(planner::OrderOnNodes const& order, std::span<int const> node_of,
                                     bool has_experts) {
    auto const& [mesh, traffic] = order;
    std::vector<std::int64_t> ranks(traffic.bytes.size(), 0);
    for (int const node : node_of) ++ranks[static_cast<std::size_t>(node)];
    auto const [fewest, most] = std::minmax_element(ranks.begin(), ranks.end());
    std::string text = "mesh " + mesh_text(mesh) + " on " + std::to_string(ranks.size()) + " nodes of " +
                       (*fewest == *most ? "" : std::to_string(*fewest) + " to ") + std::to_string(*most) +
                       (*most == 1 ? " rank" : " ranks") + ": each node sends " + detail::total_of_nodes(traffic) +
                       " across the network in a step\n";
    auto const views = mesh.views();
    auto const describe = [&](std::string_view axis) {
        int const extent = find_axis(views.axes(), axis).extent;
        if (extent == 1) return;
        auto const groups = planner::nodes_of(mesh, axis, node_of);
        text += "  " + std::string(axis) + "=" + std::to_string(extent);
        if (groups.most == 1)
            text += " stays within a node\n";
        else
            text += " crosses the network" +
                    (groups.each > 1 ? " (" + std::to_string(groups.each) + " of its ranks on a node)" : "") + ": " +
                    detail::bytes_of_nodes(traffic, [&](auto const& node) { return node[axis]; }) + "\n";
    };
    for (auto const axis : mesh.order)
        if (axis != ml::ep::name) describe(axis); // the ranks of ep are among those of dp here
    if (has_experts)
        for (auto const axis : {ml::edp::name, ml::ep::name, ml::etp::name}) describe(axis);
    if (traffic.is_modelled) text += "  part of this is modelled: what MPICH's algorithms send in MPI's collectives\n";
    if (has_experts && planner::nodes_of(mesh, "ep", node_of).most > 1)
        text += "  tokens are taken to choose experts evenly\n";
    return text;
}

PENTAD_INLINE std::string order_remark(planner::OrdersOnNodes const& orders, bool is_taken) {
    auto const& [given, best] = orders;
    if (best.mesh.order == given.mesh.order) return "";
    if (is_taken)
        return "--order auto: in the order --mesh " + mesh_text(given.mesh) + " each would send " +
               detail::total_of_nodes(given.traffic);
    return "warning: --mesh " + mesh_text(best.mesh) + " would send " + detail::total_of_nodes(best.traffic) +
           ": use it, or --order auto";
}

} // namespace pentad::report
