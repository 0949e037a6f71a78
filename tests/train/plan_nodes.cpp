// ranks: 1
//
// Where the ranks along an axis lie, and what dispatch sends between nodes, beside what is found rank by rank.
#include <doctest/extensions/doctest_mpi.h>

#include <formulas/experts.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/planner/account.hpp>
#include <pentad/planner/hardware_presets.hpp>
#include <pentad/planner/nodes.hpp>
#include <pentad/planner/search.hpp>
#include <pentad/train/planned.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using namespace pentad::planner;
using doctest::Approx;

namespace {

/// The ranks of each group along an axis, by their coordinates on all other axes.
std::vector<std::vector<std::int64_t>> groups_by_force(Strategy const& c, std::string_view axis) {
    std::map<std::array<std::int64_t, 5>, std::vector<std::int64_t>> groups;
    for (std::int64_t rank = 0; rank < c.devices(); ++rank) {
        std::array<std::int64_t, 5> others{};
        std::int64_t rest = rank;
        for (std::size_t i = c.order.size(); i-- > 0;) {
            others[i] = c.order[i] == axis ? 0 : rest % c.extent(c.order[i]);
            rest /= c.extent(c.order[i]);
        }
        groups[others].push_back(rank);
    }
    std::vector<std::vector<std::int64_t>> list;
    for (auto& [others, ranks] : groups) list.push_back(std::move(ranks));
    return list;
}

void check_against_ranks(Strategy const& c, std::int64_t per_node) {
    for (auto const axis : axis_order) {
        std::size_t most = 0;
        std::set<std::int64_t> numbers; // of ranks that a group has on a node
        for (auto const& ranks : groups_by_force(c, axis)) {
            std::map<std::int64_t, std::int64_t> on_node;
            for (auto const rank : ranks) ++on_node[rank / per_node];
            most = std::max(most, on_node.size());
            for (auto const& [node, count] : on_node) numbers.insert(count);
        }
        auto const found = nodes_of(groups_of_ranks(c, axis), per_node);
        CAPTURE(axis);
        CAPTURE(per_node);
        CHECK(found.most == static_cast<std::int64_t>(most));
        CHECK(found.each == (numbers.size() == 1 ? *numbers.begin() : 0));
    }
}

/// What a part of the model sends over an axis: forward, and in both backward passes.
SentBytes sent_over(MeshPart const& part, std::string_view axis) {
    auto const of = [&](std::size_t pass) {
        auto const& x = part.traffic[pass][traffic_index(axis)];
        return x.bytes + x.message_bytes;
    };
    return {of(0), of(1) + of(2)};
}

} // namespace

TEST_CASE("nodes of groups, rank by rank, in every order of the axes") {
    for (auto const& extents : {std::array{2, 3, 2, 1, 4}, std::array{3, 1, 6, 2, 2}, std::array{1, 5, 3, 1, 2},
                                std::array{4, 2, 2, 2, 1}, std::array{1, 1, 1, 1, 12}}) {
        Strategy c;
        c.dp = extents[0], c.pp = extents[1], c.ep = extents[2], c.cp = extents[3], c.tp = extents[4];
        std::sort(c.order.begin(), c.order.end());
        do
            for (std::int64_t const per_node : {1, 2, 3, 4, 6, 8, 12, 64}) check_against_ranks(c, per_node);
        while (std::next_permutation(c.order.begin(), c.order.end()));
    }
    // 16 ranks from one to the next, of 8 on a node: 8 nodes, though 16 lie between the first and the last.
    Strategy c{.dp = 8, .pp = 16, .ep = 4, .cp = 4, .tp = 8, .order = {"dp", "pp", "tp", "cp", "ep"}};
    CHECK(nodes_of(c, "tp", 8).most == 8);
    check_against_ranks(c, 8);
}

TEST_CASE("dispatch goes by node where every group has as many ranks on each of its nodes, and a token has choices") {
    auto model = train::planned_preset("deepseek-v3");
    auto const nodes = [&](Strategy const& c, std::int64_t per_node) { return dispatch_nodes(model, c, per_node); };
    CHECK(nodes({.ep = 64}, 8) == 8);
    CHECK(nodes({.dp = 4, .ep = 8}, 8) == 1);
    CHECK(nodes({.dp = 4, .ep = 8, .tp = 2}, 8) == 2);
    CHECK(nodes({.dp = 4, .ep = 8, .tp = 8}, 8) == 8);
    CHECK(nodes({.dp = 3, .ep = 8}, 6) == 1);          // 6 and 2
    CHECK(nodes({.dp = 2, .ep = 2, .tp = 3}, 4) == 1); // some groups lie on one node, others on two
    CHECK(nodes({.ep = 4}, 64) == 1);
    model = train::planned_model(model::decoder({.experts = 8, .top_k = 1}));
    CHECK(nodes({.ep = 64}, 8) == 1);
    // All that some order of the axes has.
    model = train::planned_preset("deepseek-v3");
    Strategy c{.dp = 4, .pp = 3, .ep = 8, .cp = 1, .tp = 2};
    std::set<std::int64_t> found;
    std::sort(c.order.begin(), c.order.end());
    do found.insert(nodes(c, 8));
    while (std::next_permutation(c.order.begin(), c.order.end()));
    auto const any = dispatch_nodes_in_any_order(model, c, 8);
    CHECK(std::vector<std::int64_t>(found.begin(), found.end()) == any);
    CHECK(any.size() > 2);
}

TEST_CASE("DeepSeek-V3 on 8 nodes: a token crosses to 3.18 of the 7 others, in 4 of 8 groups, not once for each of its "
          "experts") {
    auto const model = train::planned_preset("deepseek-v3");
    Strategy const c{.ep = 64, .batch = 64, .seq = 4096};
    double const row = 7168 * 2 * 4096; // bytes of all tokens once
    auto const rows = [&](std::int64_t nodes, std::string_view axis) {
        auto const account = Account(model, c, 1, nodes);
        return account.parts()[2].traffic[0][traffic_index(axis)].message_bytes / (2 * row); // there and back
    };
    CHECK(dispatch_nodes(model, c, 8) == 8);
    CHECK(rows(8, outer<ep>::name) == Approx(3.18).epsilon(0.005)); // with the choices that go along
    CHECK(rows(8, inner<ep>::name) == Approx(6.44).epsilon(0.005)); // to 7.36 ranks, an eighth of which have the row
    CHECK(rows(1, "ep") == Approx(7.24).epsilon(0.005));            // in one exchange
}

TEST_CASE("what is planned over the parts of ep is the closed form") {
    auto described = train::planned_preset("deepseek-v3").description();
    for (auto& block : described.blocks)
        for (auto& branch : block.branches)
            if (auto const* found = branch.part.as<model::Experts>()) {
                auto experts = *found;
                experts.router.groups = experts.router.top_groups = 1; // as the closed form
                branch.part = experts;
            }
    auto const model = train::planned_model(described);
    for (std::int64_t const nodes : {1, 2, 4, 8}) {
        Strategy c{.dp = 2, .ep = 8, .cp = 2, .batch = 64, .micro_batches = 2, .seq = 4096, .block = {.zigzag = true}};
        Account const account(model, c, 1, nodes);
        DispatchSizes const of{
            .tokens = 8 * 2 * 4096 / 2, .hidden = 7168, .top_k = 8, .ranks = 8, .experts = 256, .nodes = nodes};
        auto const expected = dispatch_bytes(of, 2, 4);
        auto const& layer = account.parts()[2];
        // Where each node has one rank, its part of ep is all of it.
        auto const across = sent_over(layer, nodes == 8 ? std::string_view("ep") : std::string_view(outer<ep>::name)),
                   inside = sent_over(layer, inner<ep>::name);
        CHECK(across.forward == Approx(expected.across.forward).epsilon(1e-3));
        CHECK(across.backward == Approx(expected.across.backward).epsilon(1e-3));
        CHECK((across.forward > 0) == (nodes > 1));
        if (nodes > 1) {
            CHECK(inside.forward == Approx(expected.inside.forward).epsilon(1e-3));
            CHECK(inside.backward == Approx(expected.inside.backward).epsilon(1e-3));
            CHECK(layer.sent["ep"] == Approx(across.total() + inside.total()).epsilon(1e-12)); // both count on ep
        } else {
            CHECK(inside.total() == 0);
            CHECK(sent_over(layer, "ep").forward == Approx(expected.inside.forward).epsilon(1e-3));
            CHECK(sent_over(layer, "ep").backward == Approx(expected.inside.backward).epsilon(1e-3));
        }
    }
}

TEST_CASE("dispatch by node takes the network's time for what crosses it, and the node's for the rest") {
    auto const model = train::planned_preset("deepseek-v3");
    auto const machine = with_devices(find_hardware("h800"), 64);
    Strategy const c{.ep = 64, .batch = 64, .seq = 4096};
    Rates const rates(machine, c);
    Account const account(model, c, 1, 8);
    for (auto const axis : {std::string_view(outer<ep>::name), std::string_view(inner<ep>::name)}) {
        auto const& x = account.parts()[2].traffic[1][traffic_index(axis)]; // backward only rows go
        auto const& link = machine.links[axis == outer<ep>::name ? 1 : 0];
        CHECK(x.bytes == 0);
        CHECK(rates.exchanges(traffic_index(axis), x) ==
              Approx(x.message_bytes / (link.bandwidth * machine.bandwidth_efficiency) + x.messages * link.latency_s));
        CHECK(x.messages == (4 * 2 + 1) * 7); // of each of 4 parts, there and back, and the gradients of the weights
    }
    // An axis whose groups do not all end where nodes end uses the network.
    auto const three = with_devices(find_hardware("h100"), 24);
    CHECK(Rates(three, {.dp = 4, .tp = 6}).collective(traffic_index("tp"), 1e9, 0) == Approx(1e9 / (0.78 * 50e9)));
    CHECK(Rates(three, {.dp = 3, .tp = 8}).collective(traffic_index("tp"), 1e9, 0) == Approx(1e9 / (0.78 * 450e9)));
}

TEST_CASE("the orders that are searched have the times and bytes of all orders") {
    auto const model = train::planned_model(
        model::deepseek(9, 7168, 129280, {.heads = 128, .head_dim = 128, .rope_dim = 64, .value_dim = 128}, 3, 18432,
                        {.count = 256, .top_k = 8, .width = 2048}));
    // In the last mesh both axes span nodes, whichever joins neighbours.
    for (auto const& extents : {std::array{2, 1, 8, 1, 2}, std::array{2, 2, 4, 2, 1}, std::array{1, 1, 16, 16, 1}}) {
        Strategy c{.batch = 64, .seq = 4096, .block = {.zigzag = true}};
        c.dp = extents[0], c.pp = extents[1], c.ep = extents[2], c.cp = extents[3], c.tp = extents[4];
        c.use_micro_batch(1);
        auto const machine = with_devices(find_hardware("h800"), c.devices());
        auto const seconds = [&](Strategy const& order) { return estimate(model, machine, order).step_s; };
        std::set<double> searched, all;
        for (auto const& order : planner::detail::orders_of(c, machine)) searched.insert(seconds(order));
        std::sort(c.order.begin(), c.order.end());
        do all.insert(seconds(c));
        while (std::next_permutation(c.order.begin(), c.order.end()));
        CHECK(searched == all);
        CHECK(all.size() > 1);
    }
}
