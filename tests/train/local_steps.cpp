// ranks: 2 4 8
//
// Local steps: between averages a group of ranks trains as if it were alone, on its part of the data, and an average is
// that of the groups' parameters, taken by hand.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/io/token_data.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/random/philox.hpp>
#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/outcome.hpp>
#include <support/parameters.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace support;

namespace {

using Weights = std::map<std::string, std::vector<double>>;

constexpr std::int64_t total_steps = 5;

train::RunSettings dense() {
    return {.model = model::decoder({.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 32, .vocab = 50}),
            .strategy = {.batch = 16, .micro_batches = 2, .seq = 16},
            .ignored = 7, // groups have different numbers of valid targets
            .steps = total_steps,
            .learning_rate = 1e-2,
            .warmup = 2,
            .clip = 0.5};
}

/// The place in a text of `windows` windows from which TokenData reads a sequence.
std::size_t place(std::uint64_t seed, std::int64_t sequence, std::uint64_t windows) {
    return random::uniform_below(seed, random::stream("data"), static_cast<std::uint64_t>(sequence), windows);
}

/// A text in which a run of one group's share of the batch finds the sequences that the group has in the whole run.
struct TextOfGroup {
    std::string text;
    std::uint64_t seed = 0;
};
TextOfGroup text_of(train::RunSettings const& settings, std::size_t group, std::size_t groups) {
    auto const whole = varied_text();
    io::TokenData const data(whole, "the text", static_cast<std::int64_t>(settings.strategy.seq), settings.seed);
    std::size_t const count = 100000, window = settings.strategy.seq + 1,
                      micro_batch = settings.strategy.batch / settings.strategy.micro_batches,
                      part = micro_batch / groups;
    TextOfGroup found;
    for (found.seed = 1;; ++found.seed) {
        found.text.assign(count + settings.strategy.seq, '\0');
        bool overlaps = false;
        for (std::size_t i = 0; i < static_cast<std::size_t>(total_steps + 1) * settings.strategy.micro_batches; ++i)
            for (std::size_t row = 0; row < part; ++row) {
                std::vector<std::int32_t> tokens(window);
                data.read(static_cast<std::int64_t>(i * micro_batch + group * part + row), tokens);
                std::size_t const at = place(found.seed, static_cast<std::int64_t>(i * part + row), count);
                for (std::size_t k = 0; k < window; ++k) {
                    overlaps = overlaps || found.text[at + k] != '\0';
                    found.text[at + k] = static_cast<char>(tokens[k]);
                }
            }
        if (!overlaps) return found;
    }
}

Weights exported(train::Trainer<f64, Exec>& trainer) {
    Weights weights;
    trainer.store().for_each_exported([&](auto const& p) { weights[p.name()] = gather_exported(p).values; });
    return weights;
}

/// One rank for each group, which trains alone; groups meet by hand. Every rank of a group does the same.
Weights by_hand(train::RunSettings const& settings, int groups) {
    Alone const alone;
    std::vector<TextOfGroup> texts;
    std::vector<io::TokenData> data;
    std::vector<std::unique_ptr<train::Trainer<f64, Exec>>> trainers;
    auto own = settings;
    own.strategy.local = {};
    own.strategy.sharding = {};
    own.strategy.batch = settings.strategy.batch / groups;
    auto const schedule =
        pipeline::generate("1f1b", {.ranks = 1, .micro_batches = static_cast<int>(settings.strategy.micro_batches)});
    for (int group = 0; group < groups; ++group)
        texts.push_back(text_of(settings, static_cast<std::size_t>(group), static_cast<std::size_t>(groups)));
    for (auto const& text : texts)
        data.emplace_back(text.text, "a group's text", static_cast<std::int64_t>(settings.strategy.seq), text.seed);
    for (auto const& one : data)
        trainers.push_back(std::make_unique<train::Trainer<f64, Exec>>(alone.context, InvariantStream<f64>::value, own,
                                                                       train::ProvenSchedules(schedule), one));
    auto anchor = exported(*trainers.front());
    Weights momentum;
    for (std::int64_t step = 1; step <= total_steps; ++step) {
        for (auto& trainer : trainers) trainer->step(step);
        if (step % settings.strategy.local.steps != 0 && step != total_steps) continue;
        std::vector<Weights> all;
        for (auto& trainer : trainers) all.push_back(exported(*trainer));
        for (auto& [name, values] : anchor)
            for (std::size_t i = 0; i < values.size(); ++i) {
                double mean = 0;
                for (auto& one : all) mean += one[name][i] / groups;
                auto& velocity = momentum[name];
                velocity.resize(values.size());
                double const difference = values[i] - mean;
                velocity[i] = settings.strategy.local.outer_momentum * velocity[i] + difference;
                values[i] -= settings.strategy.local.outer_learning_rate *
                             (difference + settings.strategy.local.outer_momentum * velocity[i]);
            }
        for (auto& trainer : trainers)
            trainer->store().for_each_imported([&](auto const& parameter) {
                auto const& values = anchor.at(parameter.name());
                auto const flat = parameter.flat_gradient();
                auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), flat);
                for (std::size_t i = 0; i < values.size(); ++i) host(i) = values[i];
                Kokkos::deep_copy(flat, host);
            });
    }
    return anchor;
}

model::ModelMesh mesh_of(MeshShape const& m, train::RunSettings const& settings) {
    return model::split_data(OnMesh::mesh(m, static_cast<int>(sizes(settings.model).kv_heads)),
                             settings.strategy.local.ranks);
}

void check(MeshShape const& m, train::RunSettings const& settings) {
    auto const& local = settings.strategy.local;
    INFO(m.text(), " ", local.steps, " local steps of ", local.ranks, " ranks, outer ", local.outer_learning_rate, " ",
         local.outer_momentum, " zero ", settings.strategy.sharding.stage);
    auto const expected = on_first_rank([&] { return by_hand(settings, m.dp / local.ranks); });
    OnMesh const on(m, mesh_of(m, settings));
    Training<InvariantStream<f64>> training(on, settings);
    for (std::int64_t step = 1; step <= total_steps; ++step) {
        auto const result = training.trainer.step(step);
        CHECK(result.not_finite.empty());
        bool const together = step % local.steps == 0 || step == total_steps;
        CHECK(training.trainer.store().is_apart() == !together);
        if (!together) CHECK_THROWS_AS((void)training.trainer.evaluate(step), std::logic_error);
    }
    std::size_t found = 0;
    training.trainer.store().for_each_exported([&](auto const& p) {
        auto const whole = gather_exported(p);
        ++found;
        CHECK_MESSAGE(worst(whole.values, expected.at(p.name())) < 1e-11, p.name());
    });
    CHECK(found > 0);
}

} // namespace

TEST_CASE("groups train alone between averages, which are those that are taken by hand") {
    int const n = world_size();
    for (auto const& local : {LocalSteps{.steps = 2}, LocalSteps{.steps = 3},
                              LocalSteps{.steps = 2, .outer_learning_rate = 0.7, .outer_momentum = 0.9},
                              LocalSteps{.steps = 2, .outer_learning_rate = 0.5}})
        for (int const stage : {0, 1, 2, 3}) {
            auto settings = dense();
            settings.strategy.local = local;
            settings.strategy.sharding.stage = stage;
            check({.dp = n}, settings);
            if (n == 2) continue;
            check({.dp = n / 2, .tp = 2}, settings);
            check({.dp = n / 2, .cp = 2}, settings);
            settings.strategy.local.ranks = 2;
            check({.dp = n}, settings);
            if (n == 8) check({.dp = 4, .pp = 2}, settings);
        }
}

TEST_CASE("an average after each step of SGD is the synchronous run") {
    int const n = world_size();
    auto settings = dense();
    settings.ignored.reset(); // as many targets in each group
    settings.learning_rate = 1;
    settings.clip = 0;
    for (bool const has_experts : {false, true}) {
        if (has_experts) change(settings, [](auto& sizes) { sizes.experts = 4; });
        settings.strategy.optimizer = model::Sgd{.momentum = has_experts ? 0.9 : 0};
        for (auto const& m :
             {MeshShape{.dp = n}, MeshShape{.dp = 2, .ep = has_experts ? n / 2 : 1, .tp = has_experts ? 1 : n / 2}}) {
            settings.strategy.local = {};
            OnMesh const plain(m, mesh_of(m, settings));
            Training<InvariantStream<f64>> synchronous(plain, settings);
            auto const expected = outcome_of(synchronous, total_steps);
            settings.strategy.local = {.steps = 1, .ranks = m.ep}; // whole copies of the experts
            OnMesh const split(m, mesh_of(m, settings));
            Training<InvariantStream<f64>> training(split, settings);
            auto const found = outcome_of(training, total_steps);
            INFO(m.text(), " experts ", has_experts);
            for (std::size_t i = 0; i < found.losses.size(); ++i)
                if (i % 4 != 3 || i + 3 >= found.losses.size()) // but for the norms, which are those of the groups
                    CHECK(std::abs(found.losses[i] - expected.losses[i]) < 1e-10);
            for (auto const& [name, whole] : found.weights)
                CHECK_MESSAGE(distance_with_padding(whole, expected.weights.at(name)) < 1e-9, name);
        }
    }
}

TEST_CASE("what local steps cannot be") {
    auto const refused = [](LocalSteps const& local, ZeroSharding const& sharding = {}, int inner_dp = 1) {
        auto settings = dense();
        settings.strategy.local = local;
        settings.strategy.sharding = sharding;
        OnMesh const on({.dp = world_size()}, OnMesh::mesh({.dp = world_size()}, 2).split<dp>(inner_dp));
        std::string why;
        try {
            Training<InvariantStream<f64>> const training(on, settings);
        } catch (std::invalid_argument const& error) {
            why = error.what();
        }
        return why;
    };
    CHECK(refused({.steps = 2, .ranks = 2}) == "local steps of 2 ranks want another mesh: make it with split<dp>(2)");
    CHECK(refused({.steps = 2, .ranks = 2}, {.stage = 1, .ranks = 2}, 2)
              .starts_with("sharding.ranks = 2 and local.steps = 2 both split dp"));
    CHECK(refused({.steps = -1}) == "local.steps = -1 is less than 0, for none");
    CHECK(refused({.steps = 1, .outer_momentum = 1}) == "local.outer_momentum = 1 is not from 0 to below 1");
    CHECK(refused({.steps = 2}).empty());
    auto routed = dense();
    change(routed, [](auto& sizes) { sizes.experts = 4; });
    routed.strategy.local = {.steps = 2};
    MeshShape const m{.dp = world_size() / 2, .ep = 2};
    OnMesh const on(m, mesh_of(m, routed));
    CHECK_THROWS_WITH_AS(Training<InvariantStream<f64>>(on, routed),
                         "groups of 1 ranks along dp that train apart do not hold whole copies of the experts: make ep "
                         "smaller or the groups larger, and the mesh with model::split_data()",
                         std::invalid_argument);
}
