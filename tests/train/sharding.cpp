// ranks: 1 2 4 8
//
// Whatever ZeRO shards, where and for how long, training gives the numbers of one rank.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/parameters.hpp>
#include <support/training.hpp>

#include <map>
#include <string>
#include <vector>

using namespace support;

namespace {

using Invariant = InvariantStream<f64>;
using Sequence = SequenceStream<f64>;

train::RunSettings dense() {
    return {.model = model::decoder({.layers = 4, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 32, .vocab = 50}),
            .batch = 16,
            .micro_batches = 4,
            .seq = 16,
            .steps = 2,
            .warmup = 1};
}
train::RunSettings with_experts() {
    auto settings = dense();
    change(settings, [](auto& sizes) { sizes.experts = 4, sizes.moe_every = 2, sizes.ties_embeddings = true; });
    return settings;
}

/// Losses and norms of each step and of an evaluation, and all weights by name.
struct Outcome {
    std::vector<double> numbers;
    std::map<std::string, Whole> weights;
};

template <class Stream>
Outcome outcome_of(Training<Stream>& training, std::int64_t steps) {
    Outcome outcome;
    auto const note = [&](train::StepResult const& result) {
        outcome.numbers.insert(outcome.numbers.end(),
                               {result.loss, result.balance_loss, result.z_loss, result.gradient_norm});
    };
    note(training.trainer.evaluate(1));
    for (std::int64_t step = 1; step <= steps; ++step) note(training.trainer.step(step));
    note(training.trainer.evaluate(steps + 1));
    training.trainer.store().for_each_exported([&](auto const& p) { outcome.weights[p.name()] = gather_exported(p); });
    return outcome;
}

/// What one rank computes, with nothing sharded; each is computed once.
Outcome const& alone(train::RunSettings const& of) {
    static std::map<std::vector<double>, Outcome> known;
    auto const [at, is_new] = known.try_emplace({static_cast<double>(sizes(of.model).experts), of.clip});
    if (!is_new) return at->second;
    auto settings = of;
    settings.sharding = {};
    settings.recompute = false;
    Alone const mesh;
    Training<Invariant> training(mesh, settings);
    return at->second = outcome_of(training, settings.steps);
}

template <class Stream>
void check(MeshShape const& m, train::RunSettings const& settings, std::string const& schedule = "1f1b",
           int chunks = 1) {
    auto const& sharding = settings.sharding;
    INFO(m.text(), " ", schedule, " stage ", sharding.stage, " over ", sharding.ranks, " keeps ",
         sharding.keeps_parameters, " accumulates ", sharding.accumulates_gradients, " releases ",
         sharding.releases_gradients, " recomputes ", settings.recompute, " experts ", sizes(settings.model).experts);
    auto const generated = pipeline::generate(
        schedule, {.ranks = m.pp, .micro_batches = static_cast<int>(settings.micro_batches), .chunks = chunks});
    auto const mesh = train::for_schedule(
        OnMesh::mesh(m, static_cast<int>(sizes(settings.model).kv_heads)).split<dp>(std::max(1, sharding.ranks)),
        generated);
    OnMesh const on(m, mesh);
    Training<Stream> training(on, settings, generated);
    auto const found = outcome_of(training, settings.steps);
    auto const& expected = alone(settings);
    CHECK(worst(found.numbers, expected.numbers) < 1e-10);
    for (auto const& [name, whole] : found.weights)
        CHECK_MESSAGE(distance_with_padding(whole, expected.weights.at(name)) < 1e-9, name);
}

/// All ways to shard that go with a mesh.
std::vector<zero::Sharding> shardings(MeshShape const& m) {
    std::vector<zero::Sharding> all{{.stage = 0}, {.stage = 1}, {.stage = 2}, {.stage = 3}};
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
            auto settings = m.dp * m.ep > 1 || m.cp > 1 ? with_experts() : dense();
            settings.sharding = sharding;
            settings.recompute = m.cp > 1;
            check<Invariant>(m, settings);
            if (m.tp > 1) check<Sequence>(m, settings);
        }
}

TEST_CASE("gradients that are released") {
    for (auto const& m : meshes([](MeshShape const& m) {
             return !m.inside_out && m.pp <= 2 && m.tp == 1 && m.cp <= 2 && 4 % (m.dp * m.ep) == 0;
         }))
        for (auto sharding : shardings(m)) {
            auto settings = with_experts();
            settings.clip = 0;
            settings.sharding = sharding;
            settings.sharding.releases_gradients = true;
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
                auto settings = with_experts();
                settings.sharding = sharding;
                check<Invariant>(m, settings, name, chunks);
            }
    }
}

TEST_CASE("a sharding that cannot be is refused in a sentence") {
    OnMesh const mesh({.dp = world_size()}, 2);
    auto const refusal = [&](zero::Sharding sharding, double clip = 1) {
        auto settings = dense();
        settings.batch = 16 * static_cast<std::size_t>(world_size());
        settings.sharding = sharding;
        settings.clip = clip;
        try {
            Training<Invariant> const training(mesh, settings);
        } catch (std::invalid_argument const& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(refusal({.stage = 4}) == "ZeRO stage 4: stages 0, 1, 2 and 3 exist");
    CHECK(refusal({.ranks = 2}) == "ZeRO over 2 ranks shards nothing in stage 0");
    CHECK(refusal({.stage = 2, .keeps_parameters = true}) == "only ZeRO stage 3 gathers parameters, which it may keep");
    CHECK(refusal({.stage = 1, .accumulates_gradients = true}) ==
          "gradients are accumulated whole in ZeRO stages 0 and 1 anyway");
    CHECK(refusal({.releases_gradients = true}) ==
          "gradients that are released cannot be clipped: their norm is known too late");
    CHECK(refusal({.releases_gradients = true}, 0).empty());
    CHECK(refusal({.stage = 3, .ranks = 7}) == "ZeRO over 7 ranks wants another mesh: make it with split<dp>(7)");
}
