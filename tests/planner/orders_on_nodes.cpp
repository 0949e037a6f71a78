// The orders of the axes that leave nodes whole, and the choice among them.
#include <doctest/doctest.h>

#include <pentad/planner/orders_on_nodes.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;
using namespace pentad::planner;

namespace {

std::vector<int> nodes_in_turn(std::int64_t ranks, std::int64_t per_node) {
    std::vector<int> node_of;
    for (std::int64_t rank = 0; rank < ranks; ++rank) node_of.push_back(static_cast<int>(rank / per_node));
    return node_of;
}

/// The coordinates of the ranks of the first node along all axes: sets of them tell orders apart.
std::set<std::array<std::int64_t, 5>> first_node(Strategy const& c, std::int64_t per_node) {
    std::set<std::array<std::int64_t, 5>> found;
    for (std::int64_t rank = 0; rank < per_node; ++rank) {
        std::array<std::int64_t, 5> at{};
        for (std::size_t i = 0; i < axis_order.size(); ++i) {
            auto const groups = groups_of_ranks(c, axis_order[i]);
            at[i] = rank / groups.stride % groups.extent;
        }
        found.insert(at);
    }
    return found;
}

} // namespace

TEST_CASE("groups on nodes that are listed are those on nodes of as many neighbours") {
    Strategy c{.dp = 2, .pp = 3, .ep = 2, .tp = 4};
    std::sort(c.order.begin(), c.order.end());
    do
        for (std::int64_t const per_node : {1, 2, 3, 4, 6, 8, 12, 48}) {
            auto const node_of = nodes_in_turn(c.devices(), per_node);
            for (auto const axis : view_axes) {
                auto const listed = nodes_of(c, axis, node_of), counted = nodes_of(c, axis, per_node);
                CHECK(listed.most == counted.most);
                CHECK(listed.each == counted.each);
            }
        }
    while (std::next_permutation(c.order.begin(), c.order.end()));
    // Ranks dealt to two nodes in turn.
    Strategy const plane{.dp = 2, .tp = 2};
    std::vector<int> const dealt{0, 1, 0, 1};
    CHECK(neighbours_on_nodes(plane, "dp", dealt) == 2);
    CHECK(neighbours_on_nodes(plane, "tp", dealt) == 1);
    Strategy const line{.cp = 8}, pairs{.dp = 2, .cp = 4};
    CHECK(neighbours_on_nodes(line, "cp", nodes_in_turn(8, 4)) == 4);
    CHECK(neighbours_on_nodes(line, "cp", nodes_in_turn(8, 8)) == 8);
    CHECK(neighbours_on_nodes(line, "cp", nodes_in_turn(8, 3)) == 1);
    CHECK(neighbours_on_nodes(line, "cp", std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1}) == 1);
    CHECK(neighbours_on_nodes(pairs, "cp", nodes_in_turn(8, 2)) == 2);
    CHECK(neighbours_on_nodes(pairs, "cp", nodes_in_turn(8, 4)) == 4);
    CHECK(neighbours_on_nodes(pairs, "cp", std::vector<int>{0, 0, 0, 0, 1, 1, 2, 2}) == 2); // of all groups
    CHECK(nodes_of(plane, "dp", dealt).most == 1);
    CHECK(nodes_of(plane, "tp", dealt).most == 2);
    CHECK(nodes_of(plane, "tp", dealt).each == 1);
}

TEST_CASE("the orders on nodes are all that leave nodes whole, each way once") {
    for (auto const& extents : {std::array{2, 3, 2, 1, 4}, std::array{4, 2, 2, 2, 1}, std::array{1, 1, 1, 1, 12},
                                std::array{8, 1, 1, 1, 8}}) {
        Strategy c;
        c.dp = extents[0], c.pp = extents[1], c.ep = extents[2], c.cp = extents[3], c.tp = extents[4];
        for (std::int64_t const per_node : {1, 2, 3, 4, 6, 8}) {
            if (c.devices() % per_node != 0) continue;
            std::set<std::set<std::array<std::int64_t, 5>>> found, whole;
            for (auto const& order : orders_on_nodes(c, per_node, false))
                CHECK(found.insert(first_node(order, per_node)).second);
            auto any = c;
            std::sort(any.order.begin(), any.order.end());
            do {
                bool is_whole = true;
                for (auto const axis : axis_order)
                    is_whole = is_whole && nodes_of(groups_of_ranks(any, axis), per_node).each > 0;
                if (is_whole) whole.insert(first_node(any, per_node));
            } while (std::next_permutation(any.order.begin(), any.order.end()));
            whole.insert(first_node(c, per_node)); // the given one, whole or not
            CHECK(found == whole);
        }
    }
}

TEST_CASE("another order is taken where the node that sends most then sends clearly less") {
    Strategy const given{.dp = 2, .pp = 2, .tp = 2};
    // What the nodes send, by the axis that joins neighbours.
    auto const least = [&](double dp, double pp, double tp, std::int64_t per_node) {
        return least_traffic(given, per_node, false, [&](Strategy const& c) {
            NodeTraffic traffic{.bytes = std::vector<PerAxis>(2)};
            auto const inside = c.order.back();
            double const most = inside == "dp" ? dp : inside == "pp" ? pp : tp;
            traffic.bytes[0]["dp"] = most / 2;
            traffic.bytes[1]["dp"] = most / 4;
            traffic.bytes[1]["tp"] = 3 * most / 4;
            return traffic;
        });
    };
    auto found = least(50, 80, 100, 2);
    CHECK(found.given.traffic.most() == 100);
    CHECK(found.given.mesh.order == given.order);
    CHECK(found.best.traffic.most() == 50);
    CHECK(found.best.mesh.order.back() == "dp");
    CHECK(least(80, 50, 100, 2).best.mesh.order.back() == "pp");
    CHECK(least(99.5, 99.5, 100, 2).best.mesh.order == given.order); // hardly less
    CHECK(least(50, 80, 100, 0).best.mesh.order == given.order);     // nodes of different sizes
    CHECK(least(200, 200, 100, 2).best.mesh.order == given.order);
}
