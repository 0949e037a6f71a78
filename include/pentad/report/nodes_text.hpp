// How a mesh lies on the nodes of a cluster, for people.
#pragma once

#include <pentad/planner/orders_on_nodes.hpp>
#include <pentad/report/format.hpp>
#include <pentad/report/plan_text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
inline std::string nodes_text(planner::OrderOnNodes const& order, std::span<int const> node_of, bool has_experts) {
    auto const& [mesh, traffic] = order;
    std::vector<std::int64_t> ranks(traffic.bytes.size(), 0);
    for (int const node : node_of) ++ranks[static_cast<std::size_t>(node)];
    auto const [fewest, most] = std::minmax_element(ranks.begin(), ranks.end());
    std::string text = "mesh " + mesh_text(mesh) + " on " + std::to_string(ranks.size()) + " nodes of " +
                       (*fewest == *most ? "" : std::to_string(*fewest) + " to ") + std::to_string(*most) +
                       (*most == 1 ? " rank" : " ranks") + ": each node sends " + detail::total_of_nodes(traffic) +
                       " across the network in a step\n";
    for (auto const axis : mesh.order) {
        if (mesh.extent(axis) == 1) continue;
        auto const groups = planner::nodes_of(mesh, axis, node_of);
        text += "  " + std::string(axis) + "=" + std::to_string(mesh.extent(axis));
        if (groups.most == 1)
            text += " stays within a node\n";
        else
            text += " crosses the network" +
                    (groups.each > 1 ? " (" + std::to_string(groups.each) + " of its ranks on a node)" : "") + ": " +
                    detail::bytes_of_nodes(traffic, [&](auto const& node) { return node[axis]; }) + "\n";
    }
    if (traffic.is_modelled) text += "  part of this is modelled: what MPICH's algorithms send in MPI's collectives\n";
    if (has_experts && planner::nodes_of(mesh, "ep", node_of).most > 1)
        text += "  tokens are taken to choose experts evenly\n";
    return text;
}

/// What there is to say of another order of the axes: where the given one is kept that it would send less, where it is
/// taken how much less; or nothing.
inline std::string order_remark(planner::OrdersOnNodes const& orders, bool is_taken) {
    auto const& [given, best] = orders;
    if (best.mesh.order == given.mesh.order) return "";
    if (is_taken)
        return "--order auto: in the order --mesh " + mesh_text(given.mesh) + " each would send " +
               detail::total_of_nodes(given.traffic);
    return "warning: --mesh " + mesh_text(best.mesh) + " would send " + detail::total_of_nodes(best.traffic) +
           ": use it, or --order auto";
}

} // namespace pentad::report
