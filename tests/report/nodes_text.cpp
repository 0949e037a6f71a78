#include <doctest/doctest.h>

#include <pentad/report/nodes_text.hpp>

#include <string>
#include <vector>

using namespace pentad;

namespace {

constexpr double MiB = 1024 * 1024;

planner::OrderOnNodes order(Strategy const& mesh, std::vector<planner::PerAxis> bytes) {
    return {mesh, {.bytes = std::move(bytes)}};
}
planner::PerAxis sent(double dp, double tp) {
    planner::PerAxis sent;
    sent["dp"] = dp;
    sent["tp"] = tp;
    return sent;
}

} // namespace

TEST_CASE("a mesh on nodes: what stays within one, and what each sends") {
    Strategy const mesh{.dp = 2, .tp = 4};
    std::vector<int> const pairs{0, 0, 1, 1, 2, 2, 3, 3}, fours{0, 0, 0, 0, 1, 1, 1, 1};
    CHECK(report::nodes_text(order(mesh, {4, sent(MiB, 2 * MiB)}), pairs, false) ==
          "mesh dp=2,tp=4 on 4 nodes of 2 ranks: each node sends 3.00 MiB across the network in a step\n"
          "  dp=2 crosses the network: 1.00 MiB\n"
          "  tp=4 crosses the network (2 of its ranks on a node): 2.00 MiB\n");
    CHECK(report::nodes_text(order(mesh, {sent(MiB, 0), sent(1.5 * MiB, 0)}), fours, false) ==
          "mesh dp=2,tp=4 on 2 nodes of 4 ranks: each node sends 1.00 MiB to 1.50 MiB across the network in a step\n"
          "  dp=2 crosses the network: 1.00 MiB to 1.50 MiB\n"
          "  tp=4 stays within a node\n");
    auto modelled = order({.ep = 2}, {sent(0, 0), sent(0, 0)});
    modelled.traffic.is_modelled = true;
    CHECK(report::nodes_text(modelled, std::vector<int>{0, 1}, true) ==
          "mesh ep=2 on 2 nodes of 1 rank: each node sends 0 B across the network in a step\n"
          "  dp=2 crosses the network: 0 B\n"
          "  ep=2 crosses the network: 0 B\n"
          "  part of this is modelled: what MPICH's algorithms send in MPI's collectives\n"
          "  tokens are taken to choose experts evenly\n");
    CHECK(report::nodes_text(order(mesh, {sent(0, 0), sent(0, 0)}), std::vector<int>{0, 0, 0, 1, 1, 1, 1, 1}, false)
              .starts_with("mesh dp=2,tp=4 on 2 nodes of 3 to 5 ranks: "));
}

TEST_CASE("another order of the axes is a flag to take") {
    planner::OrdersOnNodes orders;
    orders.given = orders.best = order({.dp = 2, .tp = 2}, {2, sent(0, 3 * MiB)});
    CHECK(report::order_remark(orders, false).empty());
    CHECK(report::order_remark(orders, true).empty());
    orders.best = order({.dp = 2, .tp = 2, .order = {"tp", "cp", "ep", "pp", "dp"}}, {2, sent(MiB, 0)});
    CHECK(report::order_remark(orders, false) ==
          "warning: --mesh tp=2,dp=2 would send 1.00 MiB: use it, or --order auto");
    CHECK(report::order_remark(orders, true) == "--order auto: in the order --mesh dp=2,tp=2 each would send 3.00 MiB");
}
