// Dispatch across nodes: a token goes once to each node that holds experts of its.
// ranks: 4
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/experts/layer.hpp>

#include <support/layer_check.hpp>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

using namespace support;

namespace {

using Stream = InvariantStream<f64>;
using Tokens = SequenceStream<f64>;
using LayerHere = experts::Layer<>::on<Stream, Exec>;

constexpr std::size_t expert_count = 12, width = 12, size = 6, top_k = 4, tokens = 48;

LayerSetup<Exec> setup_on(OnMesh const& mesh) {
    return {.context = mesh.context, .hidden = size, .batch = 12, .seq = 4};
}
LayerHere make(LayerSetup<Exec> const& setup, std::size_t choices = top_k, model::Router const& router = {}) {
    return LayerHere(setup, {.count = expert_count, .top_k = choices, .width = width, .router = router}, "moe");
}

Arrays drawn_arrays() {
    return {{"x", drawn({12, 4, size}, "x")},
            {"dy", drawn({12, 4, size}, "dy")},
            {"moe.gate.weight", drawn({expert_count, size}, "gate")},
            {"moe.experts.{}.w1.weight", drawn({expert_count, width, size}, "w1")},
            {"moe.experts.{}.w2.weight", drawn({expert_count, size, width}, "w2")},
            {"moe.experts.{}.w3.weight", drawn({expert_count, width, size}, "w3")}};
}

/// PENTAD_RANKS_PER_NODE on this rank, while it lives.
struct Simulated {
    explicit Simulated(char const* ranks_per_node) { setenv("PENTAD_RANKS_PER_NODE", ranks_per_node, 1); }
    Simulated(Simulated const&) = delete;
    Simulated& operator=(Simulated const&) = delete;
    ~Simulated() { unsetenv("PENTAD_RANKS_PER_NODE"); }
};

double sent_over_network() { return observe::ledger().entry("ep", observe::Operation::all_to_all).network_bytes; }

} // namespace

TEST_CASE("whatever the nodes, the experts are those of one rank") {
    Arrays const arrays = drawn_arrays();
    for (char const* const ranks_per_node : {"1", "2", "3", "4"}) {
        Simulated const nodes(ranks_per_node);
        for (auto const& m :
             meshes([](MeshShape const& m) { return m.pp == 1 && m.ep > 1 && 12 % (m.dp * m.ep) == 0; })) {
            INFO(m.text(), " ", ranks_per_node, " ranks a node");
            OnMesh const mesh(m);
            for (std::size_t const choices : {std::size_t{1}, top_k, expert_count}) {
                auto const setup = setup_on(mesh);
                auto const made = [choices](LayerSetup<Exec> const& s) { return make(s, choices); };
                check_layer(mesh, setup, made, on_one_rank(setup, made, arrays), 1e-11);
            }
        }
    }
}

TEST_CASE("the same choices give the same bits again, and take no more memory") {
    Simulated const nodes("2");
    OnMesh const mesh({.ep = 4});
    Arrays const arrays = drawn_arrays();
    auto const run = [&] {
        Trial<LayerHere> trial{.mesh = mesh,
                               .order = Order::contiguous,
                               .layer = make(setup_on(mesh)),
                               .arrays = arrays,
                               .pass = {.context = mesh.context}};
        auto const y = trial.forward(shard<Tokens>(mesh, arrays.at("x"), trial.order));
        auto const dy = shard<dual_t<LayerHere::output_layout>>(mesh, arrays.at("dy"), trial.order);
        auto const dx = trial.layer.backward_data(trial.pass, dy, trial.saved);
        return std::pair(gather(y, trial.order).values, gather(dx, trial.order).values);
    };
    auto const allocations = [] {
        std::int64_t sum = 0;
        for (auto const& count : observe::counters().memory) sum += count.allocations;
        return sum;
    };
    auto const first = run();
    auto const before = allocations();
    CHECK(before > 0);
    CHECK(run() == first);
    CHECK(allocations() == before);
}

TEST_CASE("a token's row crosses the network once for each node") {
    Arrays const arrays = drawn_arrays();
    for (int const each : {1, 2}) { // ranks of a node
        INFO(each, " ranks a node");
        Simulated const simulated(std::to_string(each).c_str());
        OnMesh const mesh({.ep = 4});
        Trial<LayerHere> trial{.mesh = mesh,
                               .order = Order::contiguous,
                               .layer = make(setup_on(mesh)),
                               .arrays = arrays,
                               .pass = {.context = mesh.context}};
        observe::ledger().clear();
        auto const y = trial.forward(shard<Tokens>(mesh, arrays.at("x"), trial.order));
        double const forward = sent_over_network();
        auto const choice = gather(trial.saved.router.choice, trial.order).values;
        auto const dy = shard<dual_t<LayerHere::output_layout>>(mesh, arrays.at("dy"), trial.order);
        (void)trial.layer.backward_data(trial.pass, dy, trial.saved);
        double const both = sent_over_network();

        // Tokens are dealt to the ranks in order, and experts too: 12 each, and 3.
        int const me = world_rank(), nodes = 4 / each;
        double sent = 0, received = 0, flat = 0; // rows, in the forward pass
        for (std::size_t t = 0; t < tokens; ++t) {
            int const rank = static_cast<int>(t) / 12, node = rank / each;
            std::set<int> elsewhere;
            for (std::size_t k = 0; k < top_k; ++k) {
                int const to = static_cast<int>(choice[t * top_k + k]) / 3 / each;
                if (to == node) continue;
                elsewhere.insert(to);
                flat += rank == me;
            }
            if (rank == me) sent += static_cast<double>(elsewhere.size());
            if (rank % each == me % each) received += static_cast<double>(elsewhere.count(me / each));
        }
        double const row = size * 8, words = 2 * top_k * 8, counts = 8.0 * (nodes - 1);
        CHECK(sent < 0.8 * flat); // else the test would say nothing
        CHECK(forward == doctest::Approx(counts + sent * (row + words) + received * row).epsilon(1e-14));
        // dy goes as x did, dx as y, and the gradients of a token's weights come back from each node.
        CHECK(both - forward == doctest::Approx(sent * row + received * (row + top_k * 8)).epsilon(1e-14));
    }
}

TEST_CASE("a token that chooses within two groups of experts, a group on each node, sends rows to two nodes at most") {
    Arrays const arrays = drawn_arrays();
    Simulated const simulated("1");
    OnMesh const mesh({.ep = 4});
    auto const sent_with = [&](model::Router const& router) {
        Trial<LayerHere> trial{.mesh = mesh,
                               .order = Order::contiguous,
                               .layer = make(setup_on(mesh), top_k, router),
                               .arrays = arrays,
                               .pass = {.context = mesh.context}};
        observe::ledger().clear();
        (void)trial.forward(shard<Tokens>(mesh, arrays.at("x"), trial.order));
        auto const choice = gather(trial.saved.router.choice, trial.order).values;
        double rows = 0;
        std::size_t most = 0;
        for (std::size_t t = 0; t < tokens; ++t) {
            std::set<int> nodes;
            for (std::size_t k = 0; k < top_k; ++k) nodes.insert(static_cast<int>(choice[t * top_k + k]) / 3);
            most = std::max(most, nodes.size());
            rows += static_cast<double>(nodes.size() - nodes.count(static_cast<int>(t) / 12));
        }
        double bytes = sent_over_network();
        MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        double const row = size * 8, words = 2 * top_k * 8, counts = 4 * 8.0 * 3;
        CHECK(bytes == doctest::Approx(counts + rows * (2 * row + words)).epsilon(1e-14));
        return std::pair(most, rows);
    };
    auto const bounded = sent_with({.groups = 4, .top_groups = 2}), free = sent_with({});
    CHECK(bounded.first == 2);
    CHECK(free.first > 2);
    CHECK(bounded.second < 0.8 * free.second);
}

TEST_CASE("the nodes of a token that a dry run expects are the mean over all choices") {
    using experts::detail::expected_nodes;
    CHECK(expected_nodes(256, 8, 8) == doctest::Approx(5.29).epsilon(1e-3)); // docs/formulas.md, 11
    CHECK(expected_nodes(256, 8, 8, 8, 4) == doctest::Approx(3.63).epsilon(1e-3));
    // All choices of 2 of 8 experts in 1 or 2 of 4 groups, counted.
    auto const counted = [](int nodes, int top_groups) {
        double sum = 0, count = 0;
        for (int groups = 0; groups < 16; ++groups) {
            if (__builtin_popcount(static_cast<unsigned>(groups)) != top_groups) continue;
            for (int a = 0; a < 8; ++a)
                for (int b = 0; b < 8; ++b)
                    if (a != b && (groups >> a / 2 & 1) != 0 && (groups >> b / 2 & 1) != 0) {
                        sum += a * nodes / 8 == b * nodes / 8 ? 1 : 2;
                        ++count;
                    }
        }
        return sum / count;
    };
    for (int const nodes : {2, 4, 8})
        for (int const top_groups : {1, 2, 3, 4})
            CHECK(expected_nodes(8, static_cast<std::size_t>(nodes), 2, 4, static_cast<std::size_t>(top_groups)) ==
                  doctest::Approx(counted(nodes, top_groups)).epsilon(1e-12));
}

TEST_CASE("where nodes have different sizes, and with one choice, a token goes to each rank at once") {
    Arrays const arrays = drawn_arrays();
    for (bool const has_even_nodes : {false, true}) {
        char const* const ranks_per_node = has_even_nodes ? "2" : "3";
        std::size_t const choices = has_even_nodes ? 1 : top_k;
        INFO(ranks_per_node, " ranks a node, ", choices, " choices");
        Simulated const simulated(ranks_per_node);
        OnMesh const mesh({.ep = 4});
        Trial<LayerHere> trial{.mesh = mesh,
                               .order = Order::contiguous,
                               .layer = make(setup_on(mesh), choices),
                               .arrays = arrays,
                               .pass = {.context = mesh.context}};
        observe::ledger().clear();
        (void)trial.forward(shard<Tokens>(mesh, arrays.at("x"), trial.order));
        auto const choice = gather(trial.saved.router.choice, trial.order).values;
        auto const node_of = [&](int rank) { return rank / std::atoi(ranks_per_node); };
        double there = 0, back = 0, counts = 0;
        int const me = world_rank();
        for (int rank = 0; rank < 4; ++rank) counts += node_of(rank) != node_of(me) ? 8 : 0;
        for (std::size_t t = 0; t < tokens; ++t) {
            int const from = static_cast<int>(t) / 12;
            std::set<int> ranks;
            for (std::size_t k = 0; k < choices; ++k) ranks.insert(static_cast<int>(choice[t * choices + k]) / 3);
            for (int const to : ranks)
                if (node_of(from) != node_of(to)) there += from == me, back += to == me;
        }
        double const row = size * 8, words = 2 * static_cast<double>(choices) * 8;
        CHECK(sent_over_network() == doctest::Approx(counts + there * (row + words) + back * row).epsilon(1e-14));
    }
}
