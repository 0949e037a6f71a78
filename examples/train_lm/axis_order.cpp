#include "axis_order.hpp"

#include <pentad/planner/orders_on_nodes.hpp>
#include <pentad/report/nodes_text.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/train/node_traffic.hpp>

#include <cstddef>
#include <cstdio>
#include <string>

namespace train_lm {

namespace {

std::vector<MeshAxis> axes_of(pentad::Strategy const& c) {
    std::vector<MeshAxis> axes;
    for (auto const axis : c.order) axes.push_back({std::string(axis), c.extent(axis)});
    return axes;
}

} // namespace

std::vector<MeshAxis> ordered_axes(Options const& options, pentad::pipeline::Schedule const& schedule,
                                   pentad::comm::Communicators const& communicators,
                                   std::function<std::unique_ptr<Training>(pentad::comm::Communicators&)> const& make) {
    namespace planner = pentad::planner;
    namespace report = pentad::report;
    bool const chooses = options.order == "auto",
               says = communicators.world().rank() == 0 && !options.quiet && options.steps > 0;
    if (options.quiet && !chooses) return options.mesh;
    auto const given = strategy_of(options);
    auto const& nodes = communicators.world().nodes();
    if (nodes.count() == 1) {
        if (says && communicators.world().size() > 1)
            std::printf("mesh %s on one node: nothing crosses a network\n", report::mesh_text(given).c_str());
        return options.mesh;
    }
    auto const orders =
        planner::least_traffic(given, nodes.each(), options.experts > 0, [&](pentad::Strategy const& order) {
            auto ordered = options;
            ordered.mesh = axes_of(order);
            return pentad::train::node_traffic(communicators, make_mesh(ordered, schedule), make,
                                               static_cast<int>(options.strategy.local.steps));
        });
    auto const& taken = chooses ? orders.best : orders.given;
    if (says) {
        std::vector<int> node_of;
        for (int rank = 0; rank < communicators.world().size(); ++rank) node_of.push_back(nodes.of(rank));
        std::fputs(report::nodes_text(taken, node_of, options.experts > 0).c_str(), stdout);
        auto const remark = nodes.each() == 0
                                ? "the ranks of a node do not follow each other, or nodes have different numbers of "
                                  "ranks: no other order of the axes is compared"
                                : report::order_remark(orders, chooses);
        if (!remark.empty()) std::printf("  %s\n", remark.c_str());
        std::fflush(stdout);
    }
    return axes_of(taken.mesh);
}

} // namespace train_lm
