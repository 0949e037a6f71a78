// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/experts/layer.hpp>
#include <pentad/model/router.hpp>

#include <formulas/experts.hpp>
#include <support/layer_check.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

using namespace support;

namespace {

template <class Stream>
using LayerOn = experts::Layer<>::on<Stream, Exec>;
using Invariant = InvariantStream<f64>;
using Sharded = SequenceStream<f64>;
using Tokens = Sharded; ///< as experts take them

constexpr std::size_t expert_count = 12, width = 12, size = 6, sequences = 12, length = 4;

/// 12 sequences of 4 tokens over dp and ep, and over cp and tp; 12 experts over ep, 12 wide over tp.
bool fits(MeshShape const& m) { return m.pp == 1 && 12 % (m.dp * m.ep) == 0 && 4 % (m.cp * m.tp) == 0; }
bool fits_experts(model::ExpertMesh const& m) { return expert_count % m.ep == 0 && width % m.etp == 0; }

LayerSetup<Exec> setup_on(OnMesh const& mesh, std::size_t batch = sequences, std::size_t seq = length) {
    return {.context = mesh.context,
            .hidden = size,
            .batch = batch,
            .seq = seq,
            .block = {.zigzag = 2 % mesh.shape.cp == 0}};
}

struct Described {
    char const* name;
    model::Experts experts;
};
using enum model::RouterScore;
using enum model::RouterChoice;
std::vector<Described> const all{
    {"sigmoid, groups, a bias",
     {.top_k = 3,
      .router = {.score = sigmoid,
                 .scale = 2.5,
                 .groups = 4,
                 .top_groups = 2,
                 .balance_loss = model::BalanceLoss::none,
                 .has_bias = true}}},
    {"sigmoid, a loss of all tokens", {.top_k = 2, .router = {.score = sigmoid}}},
    {"softmax, a loss of each sequence",
     {.top_k = 2, .router = {.renormalises = false, .balance_loss = model::BalanceLoss::sequence}}},
    {"sigmoid, a loss of each sequence",
     {.top_k = 3,
      .router = {.score = sigmoid, .groups = 2, .top_groups = 1, .balance_loss = model::BalanceLoss::sequence}}},
    {"Switch with jitter", {.top_k = 1, .router = {.renormalises = false, .jitter = 0.1}}},
    {"capacity, by position", {.top_k = 2, .router = {.capacity = 0.75}}},
    {"capacity, by score",
     {.top_k = 2, .router = {.score = sigmoid, .renormalises = false, .capacity = 1, .drop = model::Drop::score}}},
    {"capacity for one token", {.top_k = 2, .router = {.capacity = 1e-9}}},
    {"expert choice",
     {.top_k = 2,
      .router = {.choice = expert_choice, .renormalises = false, .balance_loss = model::BalanceLoss::none}}},
    {"expert choice, renormalised",
     {.top_k = 1, .router = {.choice = expert_choice, .balance_loss = model::BalanceLoss::none, .capacity = 1.5}}},
    {"Sinkhorn",
     {.top_k = 1, .router = {.choice = sinkhorn, .renormalises = false, .balance_loss = model::BalanceLoss::none}}},
};

constexpr double balance = 0.7, z = 0.05;

Arrays drawn_arrays() {
    return {{"x", drawn({sequences, length, size}, "x")},
            {"dy", drawn({sequences, length, size}, "dy")},
            {"moe.gate.weight", drawn({expert_count, size}, "gate")},
            {"moe.gate.e_score_correction_bias", drawn({expert_count}, "bias")},
            {"moe.experts.{}.w1.weight", drawn({expert_count, width, size}, "w1")},
            {"moe.experts.{}.w2.weight", drawn({expert_count, size, width}, "w2")},
            {"moe.experts.{}.w3.weight", drawn({expert_count, width, size}, "w3")}};
}

template <class Stream>
void check_all(std::vector<MeshShape> const& on) {
    Arrays const arrays = drawn_arrays();
    for (auto const& [name, described] : all) {
        model::Experts experts = described;
        experts.count = expert_count;
        experts.width = width;
        auto const make = [&](LayerSetup<Exec> const& setup) { return LayerOn<Stream>(setup, experts, "moe"); };
        for (auto const& m : on) {
            INFO(std::string(name), " on ", m.text());
            OnMesh const mesh(m);
            auto const setup = setup_on(mesh);
            check_layer(mesh, setup, make, on_one_rank(setup, make, arrays, nullptr, balance, z), 1e-11, balance, z);
        }
    }
}

/// What Choice chooses on a mesh for whole scores [batch, seq, experts], on every rank.
template <class Stream>
Whole choices_on(OnMesh const& mesh, model::Experts const& experts, Whole const& scores, std::size_t padding = 0) {
    auto setup = setup_on(mesh, scores.extents[0], scores.extents[1]);
    setup.padding = padding;
    experts::Choice<Stream, Exec> const choice(setup, experts, "gate");
    using Scores = with_last_dim_t<Stream, Dim<expert>>;
    auto const own = shard<Scores>(mesh, scores, setup.block.order());
    Tensor<with_element_t<with_last_dim_t<Stream, Dim<slot>>, i32>, Exec> const index(
        mesh.context, {scores.extents[0], scores.extents[1], choice.slots()});
    Pass<Exec> pass{.context = mesh.context};
    std::size_t const tokens = own.local()[1];
    choice.choose(pass, own.rows(), {},
                  {.length = static_cast<i64>(tokens),
                   .tokens = static_cast<i64>(setup.template real_tokens<Stream>(pass, tokens))},
                  index.rows());
    return gather(index, setup.block.order());
}

struct Candidate {
    double score;
    int token, slot;
};
/// The `most` best of each expert, the first tokens of equal ones.
std::vector<std::vector<Candidate>> selected(std::vector<std::vector<Candidate>> of_experts, std::size_t most) {
    for (auto& candidates : of_experts) {
        std::stable_sort(candidates.begin(), candidates.end(), [](auto const& a, auto const& b) {
            return std::tuple(-a.score, a.token) < std::tuple(-b.score, b.token);
        });
        candidates.resize(std::min(candidates.size(), most));
    }
    return of_experts;
}

/// Scores of few values, so that many are equal.
Whole coarse_scores() {
    auto scores = drawn({sequences, length, expert_count}, "scores");
    for (auto& score : scores.values) score = std::round(std::abs(score) * 3) / 3 + 0.01;
    return scores;
}

template <class Stream>
void check_selection(std::vector<MeshShape> const& on) {
    auto const scores = coarse_scores();
    constexpr int experts_here = static_cast<int>(expert_count);
    for (std::size_t const padding : {std::size_t{0}, std::size_t{1}}) {
        std::size_t const real = length - padding;
        auto const score = [&](int token, int e) {
            return scores.values[static_cast<std::size_t>(token * experts_here + e)];
        };
        auto const is_real = [&](int token) { return static_cast<std::size_t>(token) % length < real; };
        std::size_t const tokens = sequences * real;
        for (double const capacity : {0.1, 0.75, 1.0, 50.0}) {
            // Experts choose.
            std::vector<std::vector<Candidate>> candidates(expert_count);
            for (int token = 0; token < static_cast<int>(sequences * length); ++token)
                for (int e = 0; e < experts_here && is_real(token); ++e)
                    candidates[e].push_back({score(token, e), token, e});
            model::Router const choosing{
                .choice = expert_choice, .balance_loss = model::BalanceLoss::none, .capacity = capacity};
            std::size_t const most = choosing.most_choices(expert_count, 2, static_cast<double>(tokens));
            CHECK(most == std::clamp<std::size_t>(
                              static_cast<std::size_t>(std::floor(capacity * 2.0 * static_cast<double>(tokens) / 12)),
                              1, tokens));
            std::vector<std::set<int>> chosen(sequences * length);
            for (auto const& of_expert : selected(candidates, most))
                for (auto const& one : of_expert) chosen[static_cast<std::size_t>(one.token)].insert(one.slot);
            std::vector<double> expected;
            for (auto const& of_token : chosen)
                for (std::size_t k = 0; k < expert_count; ++k)
                    expected.push_back(
                        k < of_token.size() ? *std::next(of_token.begin(), static_cast<std::ptrdiff_t>(k)) : -1);
            for (auto const& m : on) {
                INFO(m.text(), " capacity ", capacity, " padding ", padding);
                OnMesh const mesh(m);
                auto const found =
                    choices_on<Stream>(mesh, {.count = expert_count, .top_k = 2, .router = choosing}, scores, padding);
                CHECK(found.values == expected);
                for (auto const drop : {model::Drop::position, model::Drop::score}) {
                    auto const before = choices_on<Stream>(mesh, {.count = expert_count, .top_k = 2}, scores, padding);
                    std::vector<std::vector<Candidate>> wanted(expert_count);
                    for (int token = 0; token < static_cast<int>(sequences * length); ++token)
                        for (int k = 0; k < 2 && is_real(token); ++k) {
                            auto const e = static_cast<int>(before.values[static_cast<std::size_t>(2 * token + k)]);
                            wanted[e].push_back({drop == model::Drop::score ? score(token, e) : 0, token, e});
                        }
                    std::set<std::pair<int, int>> taken;
                    for (auto const& of_expert : selected(wanted, most))
                        for (auto const& one : of_expert) taken.insert({one.token, one.slot});
                    std::vector<double> kept_first;
                    for (int token = 0; token < static_cast<int>(sequences * length); ++token) {
                        std::vector<double> kept, dropped;
                        for (int k = 0; k < 2; ++k) {
                            auto const e = static_cast<int>(before.values[static_cast<std::size_t>(2 * token + k)]);
                            if (e < 0)
                                dropped.push_back(e);
                            else if (taken.contains({token, e}))
                                kept.push_back(e);
                            else
                                dropped.push_back(-2 - e);
                        }
                        kept_first.insert(kept_first.end(), kept.begin(), kept.end());
                        kept_first.insert(kept_first.end(), dropped.begin(), dropped.end());
                    }
                    model::Router const dropping{.capacity = capacity, .drop = drop};
                    CHECK(choices_on<Stream>(mesh, {.count = expert_count, .top_k = 2, .router = dropping}, scores,
                                             padding)
                              .values == kept_first);
                }
            }
        }
    }
}

template <class V>
std::vector<double> on_host(V const& view) {
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
    return {host.data(), host.data() + host.size()};
}

} // namespace

TEST_CASE("DeepSeek-V3's experts, the loss of each sequence and the load are PyTorch's on any mesh") {
    Arrays arrays = golden("deepseek_moe");
    for (char const* name : {"x", "gate"}) {
        auto& gradient = arrays.at("d" + std::string(name)).values;
        auto const& of_loss = arrays.at("d" + std::string(name) + "_sequence").values;
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += balance * of_loss[i];
    }
    for (std::string const d : {"", "d"}) {
        arrays[d + "moe.gate.weight"] = arrays.at(d + "gate");
        for (auto const& [own, published] :
             {std::pair("w1", "gate_proj"), std::pair("w2", "down_proj"), std::pair("w3", "up_proj")}) {
            arrays[d + "moe.experts.{}." + own + ".weight"] = arrays.at(d + own);
            arrays[d + "moe.shared_experts." + published + ".weight"] = arrays.at(d + "shared_" + own);
        }
    }
    arrays["moe.gate.e_score_correction_bias"] = arrays.at("bias");
    arrays["dmoe.gate.e_score_correction_bias"] = arrays.at("load");
    model::Experts experts{
        .count = expert_count, .top_k = 3, .width = width, .shared = 1, .router = model::deepseek_v3_router};
    experts.router.groups = 4;
    experts.router.top_groups = 2;
    for (auto const& m : meshes(fits)) {
        INFO(m.text());
        OnMesh const mesh(m);
        auto const setup = setup_on(mesh);
        auto const make = [&](LayerSetup<Exec> const& s) { return LayerOn<Invariant>(s, experts, "moe"); };
        Trial<LayerOn<Invariant>> trial{.mesh = mesh,
                                        .order = setup.block.order(),
                                        .layer = make(setup),
                                        .arrays = arrays,
                                        .pass = {.context = mesh.context, .balance_scale = balance}};
        trial.check(1e-12);
        (void)trial.forward(shard<Tokens>(mesh, arrays.at("x"), setup.block.order()));
        CHECK(trial.auxiliary()[0] == doctest::Approx(arrays.at("sequence_loss").values[0]).epsilon(1e-12));
    }
}

TEST_CASE("every router is on any mesh what it is on one rank, and its gradients are those of its losses") {
    check_all<Invariant>(meshes(fits));
}
TEST_CASE("so is it where tp shards the sequence") { check_all<Sharded>(meshes(fits)); }
TEST_CASE("and where the experts' ranks are folded over those of dp, cp and tp") {
    check_all<Invariant>(foldings(fits, [](model::ExpertMesh const& m) { return fits_experts(m) && m.ep % 2 == 0; }));
}

TEST_CASE("experts select the best tokens of all ranks, the first of equal ones, and drop the others") {
    check_selection<Invariant>(meshes(fits));
    check_selection<Sharded>(meshes(fits));
}

TEST_CASE("a selection sends what its formula says, whatever the scores") {
    auto const scores = coarse_scores();
    int const n = world_size();
    if (sequences % static_cast<std::size_t>(n) != 0) return;
    OnMesh const mesh({.dp = n});
    for (auto const& [router, score_digits] :
         {std::pair(model::Router{.choice = expert_choice, .balance_loss = model::BalanceLoss::none}, 6),
          std::pair(model::Router{.capacity = 1, .drop = model::Drop::score}, 6),
          std::pair(model::Router{.capacity = 1}, 0)}) {
        observe::ledger().clear();
        (void)choices_on<Invariant>(mesh, {.count = expert_count, .top_k = 2, .router = router}, scores);
        double const sent = observe::ledger().entry("dp", observe::Operation::all_reduce).bytes;
        CHECK(sent == doctest::Approx(planner::selection_bytes(expert_count, n, score_digits, sequences * length)));
    }
}

TEST_CASE("exercise: of 1000 tokens experts 0 and 2 drop 144 and 94 at capacity 1.25, and none at 2.4") {
    constexpr std::array shares{300, 50, 250, 100, 50, 100, 100, 50}; // of 8 experts, of 1000 tokens
    Whole scores{{10, 100, shares.size()}, std::vector<double>(8000, 0.1)};
    for (std::size_t token = 0; token < 1000; ++token) {
        int place = static_cast<int>(token * 7 % 1000), e = 0; // tokens of an expert lie all over the batch
        while (place >= shares[static_cast<std::size_t>(e)]) place -= shares[static_cast<std::size_t>(e++)];
        scores.values[token * 8 + static_cast<std::size_t>(e)] = 0.2 + 0.0005 * static_cast<double>(token);
    }
    for (auto const& m : meshes([](MeshShape const& m) {
             return m.pp == 1 && m.tp == 1 && 10 % (m.dp * m.ep) == 0 && 100 % (2 * m.cp) == 0;
         }))
        for (auto const drop : {model::Drop::position, model::Drop::score}) {
            INFO(m.text());
            OnMesh const mesh(m);
            auto const dropped = [&](double capacity) {
                std::vector<int> counts(8);
                auto const found = choices_on<Invariant>(
                    mesh, {.count = 8, .top_k = 1, .router = {.capacity = capacity, .drop = drop}}, scores);
                for (double const slot : found.values)
                    if (slot < -1) ++counts[static_cast<std::size_t>(-2 - slot)];
                return counts;
            };
            CHECK(dropped(1.25) == std::vector<int>{144, 0, 94, 0, 0, 0, 0, 0});
            CHECK(dropped(2.4) == std::vector<int>(8));
        }
}

TEST_CASE("a router that cannot be is refused in a sentence") {
    OnMesh const mesh(meshes([](auto const& m) { return m.dp == m.ranks(); }).front());
    auto setup = setup_on(mesh);
    auto const make = [&](model::Experts const& experts) {
        return experts::Choice<Invariant, Exec>(setup, experts, "layer.gate");
    };
    CHECK_THROWS_WITH_AS(make({.count = 8, .router = {.groups = 3}}),
                         "layer.gate: 8 experts cannot be divided into 3 equal groups", std::invalid_argument);
    CHECK_THROWS_WITH_AS(make({.count = 8, .top_k = 3, .router = {.groups = 4, .top_groups = 1}}),
                         "layer.gate: a token cannot choose 3 experts in 1 groups of 2", std::invalid_argument);
    CHECK_THROWS_WITH_AS(make({.count = 8, .router = {.choice = hash}}),
                         "layer.gate: only tokens that choose their experts need balance: set no loss and no bias",
                         std::invalid_argument);
    setup.slices = 2;
    CHECK_THROWS_WITH_AS(
        make({.count = 8, .router = {.capacity = 1}}),
        "layer.gate: capacity, expert choice and Sinkhorn see all tokens of a micro-batch: they need a "
        "schedule without slices of sequences",
        std::invalid_argument);
}

TEST_CASE("a hash names different experts for a token, the same for equal tokens, about as often each") {
    constexpr int experts = 16, top_k = 3, length = 500;
    Kokkos::View<i32**, Kokkos::LayoutRight, Exec> const tokens("tokens", 2, 2 * length);
    auto const host = Kokkos::create_mirror_view(tokens);
    for (int b = 0; b < 2; ++b)
        for (int s = 0; s < 2 * length; ++s) host(b, s) = s % 997;
    Kokkos::deep_copy(tokens, host);
    Kokkos::View<i32**, Kokkos::LayoutRight, Exec> const index("index", 2 * length, top_k),
        other("other", 2 * length, top_k);
    kernels::TokenRows const rows{.length = length, .tokens = length - 1};
    experts::hashed_experts(Exec(), tokens, length, rows, experts, 7, index);
    experts::hashed_experts(Exec(), tokens, length, rows, experts, 8, other);
    auto const found = on_host(index);
    CHECK(found != on_host(other));
    std::map<int, int> count;
    for (int t = 0; t < 2 * length; ++t) {
        std::set<double> const of_token(found.begin() + t * top_k, found.begin() + (t + 1) * top_k);
        if (t % length == length - 1) {
            CHECK(of_token == std::set<double>{-1});
            continue;
        }
        CHECK(of_token.size() == top_k);
        CHECK(found[t * top_k] == found[t % length * top_k]);
        for (double const e : of_token) ++count[static_cast<int>(e)];
    }
    for (int e = 0; e < experts; ++e) CHECK(std::abs(count[e] - 2 * 499 * top_k / experts) < 60);
}

TEST_CASE("jitter depends on a token's number alone and stays in its bounds") {
    constexpr int rows = 8, hidden = 5;
    Kokkos::View<f64**, Kokkos::LayoutRight, Exec> const x("x", rows, hidden), y("y", rows, hidden),
        z("z", rows, hidden);
    Kokkos::deep_copy(x, 1.0);
    Kokkos::View<i32*, Exec> const number("number", rows), ascending("ascending", rows);
    auto const numbers = Kokkos::create_mirror_view(number), others = Kokkos::create_mirror_view(ascending);
    for (int r = 0; r < rows; ++r) {
        numbers(r) = r ^ 5;
        others(r) = r;
    }
    Kokkos::deep_copy(number, numbers);
    Kokkos::deep_copy(ascending, others);
    experts::jittered<f64>(Exec(), x, number, 0.1, 5, 6, y);
    experts::jittered<f64>(Exec(), x, ascending, 0.1, 5, 6, z);
    auto const found = on_host(y), expected = on_host(z);
    for (int r = 0; r < rows; ++r)
        for (int i = 0; i < hidden; ++i) {
            CHECK(found[r * hidden + i] == expected[(r ^ 5) * hidden + i]);
            CHECK(std::abs(found[r * hidden + i] - 1) <= 0.1);
        }
    CHECK(std::set<double>(found.begin(), found.end()).size() == rows * hidden);
}
