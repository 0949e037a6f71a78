// ranks: 4 8
//
// What node_traffic() says of a step before it runs is what the ledger counts in it: of every node, on every axis, in
// every order of the axes, on nodes of one, two and three ranks.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/planner/orders_on_nodes.hpp>
#include <pentad/report/nodes_text.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/train/node_traffic.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/schedules.hpp>
#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace support;

namespace {

struct How {
    std::string schedule = "1f1b";
    bool sequence_parallel = false;
};

model::ModelMesh mesh_of(pentad::Strategy const& c, train::RunSettings const& settings,
                         pipeline::Schedule const& schedule) {
    auto const extent = [&](std::string_view axis) { return static_cast<int>(c.extent(axis)); };
    model::RankMesh const mesh(extent("dp"), extent("pp"), extent("ep"), extent("cp"), extent("tp"));
    auto const copies = std::max(1, extent("tp") / static_cast<int>(sizes(settings.model).kv_heads));
    auto const inner_dp = std::max(1, settings.strategy.sharding.ranks);
    auto const views = model::with_experts(mesh.ordered(c.order)).split<tp>(copies);
    return train::for_schedule(model::split_data(views, inner_dp), schedule);
}

/// Compares one order, and gives what was planned for it.
template <class Stream>
planner::NodeTraffic compare(pentad::Strategy const& c, train::RunSettings const& settings, How const& how) {
    auto const schedule =
        pipeline::generate(how.schedule, {.ranks = static_cast<int>(c.pp),
                                          .micro_batches = static_cast<int>(settings.strategy.micro_batches),
                                          .chunks = 0});
    // The nodes are those of the ranks, whatever mesh they had before.
    comm::Communicators const some(MPI_COMM_WORLD, Mesh<Axis<dp>>(world_size()));
    auto const mesh = mesh_of(c, settings, schedule);
    auto const text = varied_text();
    io::TokenData const data(text, "the text", static_cast<std::int64_t>(settings.strategy.seq), settings.seed);
    struct Run {
        Run(comm::Communicators& communicators, train::RunSettings const& run, pipeline::Schedule const& its_schedule,
            io::TokenData const& its_data)
            : context(communicators),
              trainer(context, Stream::value, run, train::ProvenSchedules(its_schedule), its_data) {}
        void step(int number) { trainer.step(number); }
        void average() { trainer.average(); }
        Context<Exec> context;
        train::Trainer<f32, Exec> trainer;
    };
    auto const make = [&](comm::Communicators& communicators) {
        return std::make_unique<Run>(communicators, settings, schedule, data);
    };
    auto const planned = train::node_traffic(some, mesh, make);

    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    auto const run = make(communicators);
    run->step(1);
    observe::ledger().clear();
    run->step(2);
    auto const& nodes = communicators.world().nodes();
    REQUIRE(planned.bytes.size() == static_cast<std::size_t>(nodes.count()));
    INFO(report::mesh_text(c), " zero ", settings.strategy.sharding.stage, " ", how.schedule);
    for (int node = 0; node < nodes.count(); ++node)
        for (auto const axis : pentad::axis_order) {
            double counted = nodes.mine() == node ? observe::ledger().network_bytes(axis) : 0;
            MPI_Allreduce(MPI_IN_PLACE, &counted, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            CHECK_MESSAGE(planned.bytes[static_cast<std::size_t>(node)][axis] == counted, axis, " node ", node);
        }
    return planned;
}

/// Compares all orders of the axes of more than one rank, and the choice among those that leave nodes whole.
void compare_orders(pentad::Strategy given, train::RunSettings const& settings, int per_node, How const& how = {}) {
    SimulatedNodes const simulated(std::to_string(per_node));
    auto const one = [&](pentad::Strategy const& c) {
        return how.sequence_parallel ? compare<SequenceStream<f32>>(c, settings, how)
                                     : compare<InvariantStream<f32>>(c, settings, how);
    };
    std::vector<double> all; // of orders that leave nodes whole
    std::vector<std::string> seen;
    auto c = given;
    std::sort(c.order.begin(), c.order.end());
    do {
        if (std::find(seen.begin(), seen.end(), report::mesh_text(c)) != seen.end()) continue;
        seen.push_back(report::mesh_text(c));
        auto const traffic = one(c);
        bool is_whole = true;
        for (auto const axis : pentad::axis_order) is_whole = is_whole && planner::nodes_of(c, axis, per_node).each > 0;
        if (is_whole) all.push_back(traffic.most());
    } while (std::next_permutation(c.order.begin(), c.order.end()));
    if (world_size() % per_node != 0) return;
    auto const found = planner::least_traffic(given, per_node, settings.model.first<model::Experts>() != nullptr, one);
    double const least = std::min(found.given.traffic.most(), *std::min_element(all.begin(), all.end()));
    CHECK(found.best.traffic.most() <= least / 0.99);
    CHECK(found.best.traffic.most() >= least);
}

train::RunSettings dense() {
    return {.model = model::decoder({.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 96, .vocab = 128}),
            .strategy = {.batch = 32, .micro_batches = 4, .seq = 32},
            .steps = 4};
}

} // namespace

TEST_CASE("two axes in both orders") {
    int const n = world_size();
    for (int const per_node : {1, 2}) {
        compare_orders({.dp = 2, .tp = n / 2}, dense(), per_node);
        compare_orders({.dp = 2, .tp = n / 2}, dense(), per_node, {.sequence_parallel = true});
        compare_orders({.pp = 2, .cp = n / 2}, dense(), per_node, {.schedule = "zb-h1"});
    }
}

TEST_CASE("ZeRO, hybrid sharding, a tied embedding and copies of stages") {
    int const n = world_size();
    for (int const stage : {1, 2, 3}) {
        auto run = dense();
        run.strategy.sharding.stage = stage;
        compare_orders({.dp = n / 2, .tp = 2}, run, 2);
        change(run, [](auto& sizes) { sizes.ties_embeddings = true; });
        compare_orders({.dp = n / 2, .pp = 2}, run, 2);
    }
    auto run = dense();
    run.strategy.sharding.stage = 3;
    run.strategy.sharding.ranks = 2;
    compare_orders({.dp = n}, run, 2);
    run.strategy.sharding = {};
    compare_orders({.dp = n / 2, .pp = 2}, run, 2, {.schedule = "dualpipe"});
}

TEST_CASE("nodes of different sizes") {
    int const n = world_size();
    compare_orders({.dp = 2, .tp = n / 2}, dense(), 3);
    compare_orders({.pp = 2, .cp = n / 2}, dense(), 3);
}

// Where every token goes to every expert, routing is even without a router's help.
TEST_CASE("experts") {
    int const n = world_size();
    auto run = dense();
    change(run, [](auto& sizes) { sizes.experts = 8, sizes.top_k = 8, sizes.moe_every = 2; });
    compare_orders({.ep = n}, run, 2);
    compare_orders({.ep = n / 2, .tp = 2}, run, 2);
}

TEST_CASE("three axes on eight ranks") {
    if (world_size() != 8) return;
    compare_orders({.dp = 2, .pp = 2, .tp = 2}, dense(), 2);
    compare_orders({.dp = 2, .cp = 2, .tp = 2}, dense(), 4);
}
