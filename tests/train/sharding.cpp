// ranks: 1 2 4 8
//
// Whatever ZeRO shards, where and for how long, training gives the numbers of one rank.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/outcome.hpp>
#include <support/parameters.hpp>
#include <support/training.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace support;

namespace {

using Invariant = InvariantStream<f64>;
using Sequence = SequenceStream<f64>;

/// outcome_of() with an evaluation before the first step.
template <class Stream>
Outcome evaluated_outcome_of(Training<Stream>& training, std::int64_t steps) {
    double const first = training.trainer.evaluate(1).loss;
    auto outcome = outcome_of(training, steps);
    outcome.losses.push_back(first);
    return outcome;
}

/// What one rank computes, with nothing sharded; each is computed once.
Outcome const& alone(train::RunSettings const& of) {
    static std::map<std::vector<double>, Outcome> known;
    auto const [at, is_new] = known.try_emplace(
        {static_cast<double>(sizes(of.model).experts), of.clip, static_cast<double>(of.strategy.micro_batches)});
    if (!is_new) return at->second;
    auto settings = of;
    settings.strategy.sharding = {};
    settings.strategy.recompute = {};
    return at->second = trained_alone<Invariant>(
               settings, [&](auto& training) { return evaluated_outcome_of(training, settings.steps); });
}

template <class Stream>
void check(MeshShape const& m, train::RunSettings const& settings, std::string const& schedule = "1f1b",
           int chunks = 1) {
    auto const& sharding = settings.strategy.sharding;
    INFO(m.text(), " ", schedule, " stage ", sharding.stage, " over ", sharding.ranks, " keeps ",
         sharding.keeps_parameters, " accumulates ", sharding.accumulates_gradients, " releases ",
         sharding.releases_gradients, " recomputes ", model::text(settings.strategy.recompute), " experts ",
         sizes(settings.model).experts);
    auto const generated = pipeline::generate(
        schedule,
        {.ranks = m.pp, .micro_batches = static_cast<int>(settings.strategy.micro_batches), .chunks = chunks});
    OnMesh const on(m, mesh_of(m, settings, generated));
    Training<Stream> training(on, settings, generated);
    auto const found = evaluated_outcome_of(training, settings.steps);
    auto const& expected = alone(settings);
    CHECK(worst(found.losses, expected.losses) < 1e-10);
    for (auto const& [name, whole] : found.weights)
        CHECK_MESSAGE(distance_with_padding(whole, expected.weights.at(name)) < 1e-9, name);
}

/// All ways to shard that go with a mesh.
std::vector<ZeroSharding> shardings(MeshShape const& m) {
    std::vector<ZeroSharding> all{{.stage = 0}, {.stage = 1}, {.stage = 2}, {.stage = 3}};
    all.push_back({.stage = 2, .accumulates_gradients = true});
    all.push_back({.stage = 3, .accumulates_gradients = true});
    all.push_back({.stage = 3, .keeps_parameters = true});
    if (m.dp % 2 == 0)
        for (int const stage : {1, 2, 3}) all.push_back({.stage = stage, .ranks = 2});
    return all;
}

} // namespace

TEST_CASE("every way to shard parameters, gradients and optimizer state, over every axis that they are shared along") {
    for (auto const& m : meshes([](MeshShape const& m) {
             return !m.inside_out && m.pp <= 2 && m.tp <= 2 && m.cp <= 2 && 4 % (m.dp * m.ep) == 0 && 4 % m.ep == 0;
         }))
        for (auto const& sharding : shardings(m)) {
            auto settings = m.dp * m.ep > 1 || m.cp > 1 ? small_with_experts() : small_dense();
            settings.strategy.sharding = sharding;
            if (m.cp > 1) settings.strategy.recompute = {.kind = model::Recomputation::Kind::full};
            check<Invariant>(m, settings);
            if (m.tp > 1) check<Sequence>(m, settings);
        }
}

TEST_CASE("gradients that are released") {
    for (auto const& m : meshes([](MeshShape const& m) {
             return !m.inside_out && m.pp <= 2 && m.tp == 1 && m.cp <= 2 && 4 % (m.dp * m.ep) == 0;
         }))
        for (auto sharding : shardings(m)) {
            auto settings = small_with_experts();
            settings.clip = 0;
            settings.strategy.sharding = sharding;
            settings.strategy.sharding.releases_gradients = true;
            check<Invariant>(m, settings);
        }
}

TEST_CASE("with schedules that split backward passes, or hold two copies of a stage") {
    int const n = world_size();
    if (n < 4) return;
    for (int const dp : {2, n / 2}) {
        if (n / dp < 2) continue;
        MeshShape const m{.dp = dp, .pp = n / dp};
        for (auto const& [name, chunks] : std::vector<std::pair<std::string, int>>{
                 {"zb-h1", 1}, {"zb-v", 2}, {"dualpipe", 1}, {"dualpipe-v", 2}, {"interleaved-1f1b", 2}})
            for (auto const& sharding : shardings(m)) {
                if (sharding.stage < 2) continue;
                if (chunks * m.pp > 4 || (name == "dualpipe" && m.pp > 4)) continue;
                auto settings = small_with_experts();
                settings.strategy.sharding = sharding;
                check<Invariant>(m, settings, name, chunks);
            }
    }
}

TEST_CASE("a tied table of which one user has no micro-batch") {
    if (world_size() != 4) return;
    MeshShape const m{.dp = 2, .pp = 2};
    for (auto const& sharding : shardings(m)) {
        auto settings = small_with_experts();
        settings.strategy.micro_batches = 1; // of the two copies of each stage one has none
        settings.strategy.sharding = sharding;
        check<Invariant>(m, settings, "dualpipe");
    }
}

TEST_CASE("a sharding that cannot be is refused in a sentence") {
    OnMesh const mesh({.dp = world_size()}, 2);
    auto const refusal = [&](ZeroSharding sharding, double clip = 1) {
        auto settings = small_dense();
        settings.strategy.batch = 16 * static_cast<std::size_t>(world_size());
        settings.strategy.sharding = sharding;
        settings.clip = clip;
        try {
            Training<Invariant> const training(mesh, settings);
        } catch (std::invalid_argument const& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(refusal({.stage = 4}) == "sharding.stage = 4 is not between 0 and 3");
    CHECK(refusal({.ranks = 2}) == "sharding.ranks = 2 shards nothing with sharding.stage = 0");
    CHECK(refusal({.stage = 2, .keeps_parameters = true}) ==
          "sharding.keeps_parameters = on keeps gathered parameters, and sharding.stage = 2 gathers none");
    CHECK(refusal({.stage = 1, .accumulates_gradients = true}) ==
          "sharding.accumulates_gradients = on is a choice of sharding.stage = 2 and 3: with sharding.stage = 1 "
          "whole gradients are accumulated anyway");
    CHECK(refusal({.releases_gradients = true}) == "sharding.releases_gradients = on updates weights before the norm "
                                                   "of all gradients, which clip limits, is known");
    CHECK(refusal({.releases_gradients = true}, 0).empty());
    CHECK(refusal({.stage = 3, .ranks = 7}) == "ZeRO over 7 ranks wants another mesh: make it with split<dp>(7)");
}
