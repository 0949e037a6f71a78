// ranks: 2 4 8
//
// Blocks that lie on their ranks in different ways, each with a residual stream of its own layout, train as one rank
// does: the step from one stream to the next, and its adjoint, follow from the layouts.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>

#include <support/training.hpp>

#include <stdexcept>
#include <string>
#include <vector>

using namespace support;

namespace {

model::BlockStrategy const whole{}, shards{.sequence_parallel = true},
    exchanges{.attention_output = model::AttentionOutput::all_to_all},
    both{.sequence_parallel = true, .attention_output = model::AttentionOutput::all_to_all};

/// The ways in which four blocks lie on their ranks.
std::vector<std::vector<model::BlockStrategy>> ways() {
    return {{shards, whole, shards, whole},
            {whole, shards, shards, exchanges},
            {exchanges, both, whole, shards},
            {both, both, exchanges, exchanges}};
}

template <class Stream>
std::vector<double> numbers(MeshShape const& m, train::RunSettings const& settings, std::string const& schedule) {
    auto const made = pipeline::generate(
        schedule, {.ranks = m.pp, .micro_batches = static_cast<int>(settings.strategy.micro_batches)});
    OnMesh const mesh(m, mesh_of(m, settings, made));
    Training<Stream> training(mesh, settings, made);
    auto result = steps(training, 1, 3);
    result.push_back(training.trainer.evaluate(4).loss);
    return result;
}

/// What one rank has.
std::vector<double> expected_numbers(train::RunSettings settings) {
    settings.strategy.blocks.clear();
    settings.strategy.sharding = {};
    Alone const alone;
    Training<InvariantStream<f64>> training(alone, settings);
    auto result = steps(training, 1, 3);
    result.push_back(training.trainer.evaluate(4).loss);
    return result;
}

void check(MeshShape const& m, train::RunSettings settings, std::string const& schedule = "1f1b") {
    auto const expected = expected_numbers(settings);
    for (auto const& blocks : ways()) {
        settings.strategy.blocks = blocks;
        for (bool const sequence_parallel : {false, true}) { // of the ends
            settings.strategy.block.sequence_parallel = sequence_parallel;
            auto const found = sequence_parallel ? numbers<SequenceStream<f64>>(m, settings, schedule)
                                                 : numbers<InvariantStream<f64>>(m, settings, schedule);
            INFO(m.text(), " ", schedule, " ends sp ", sequence_parallel, " first sp ",
                 blocks.front().sequence_parallel);
            for (std::size_t i = 0; i < expected.size(); ++i)
                CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-10));
        }
    }
}

std::vector<MeshShape> meshes() {
    int const n = world_size();
    if (n == 2) return {{.tp = 2}};
    if (n == 4) return {{.tp = 4}, {.dp = 2, .tp = 2}, {.pp = 2, .tp = 2}, {.cp = 2, .tp = 2}};
    return {{.pp = 2, .cp = 2, .tp = 2}, {.dp = 2, .pp = 2, .tp = 2}, {.pp = 4, .tp = 2}};
}

} // namespace

TEST_CASE("blocks with streams of their own train as one rank does") {
    for (auto const& m : meshes()) check(m, small_dense());
}

TEST_CASE("blocks with streams of their own: experts, ZeRO, recomputation, schedules, a sequence that is padded") {
    auto settings = small_with_experts();
    settings.strategy.seq = 14;
    settings.strategy.sharding.stage = 3;
    for (auto const& m : meshes()) check(m, settings);
    settings = small_dense();
    settings.strategy.sharding.stage = 1;
    for (auto const& recompute : {model::Recomputation{.kind = model::Recomputation::Kind::full, .every = 2},
                                  model::Recomputation{.kind = model::Recomputation::Kind::selective,
                                                       .pieces = {model::Piece::inputs, model::Piece::attention}}}) {
        settings.strategy.recompute = recompute;
        check(meshes().front(), settings);
    }
    if (world_size() == 4)
        for (auto const* const schedule : {"zb-h1", "gpipe", "interleaved-1f1b"})
            check({.pp = 2, .tp = 2}, settings, schedule);
}

TEST_CASE("blocks with meshes of their own train as one rank does") {
    using model::TensorKind;
    struct Trial {
        MeshShape mesh;
        std::vector<model::BlockStrategy> blocks;
    };
    auto const on = [](std::int64_t cp, std::int64_t tp, model::BlockStrategy block = {}) {
        block.mesh = model::BlockMesh{cp, tp};
        return block;
    };
    model::BlockStrategy const grid{.tensor_kind = TensorKind::two_d}, deep{.tensor_kind = TensorKind::two_and_half_d};
    std::vector<Trial> trials;
    if (world_size() == 2)
        trials = {{{.dp = 2}, {on(1, 2), whole, on(2, 1), on(1, 1)}}, {{.tp = 2}, {on(1, 1), shards, on(1, 2), whole}}};
    if (world_size() == 4)
        trials = {{{.dp = 2, .tp = 2}, {on(1, 4, grid), whole, on(1, 4, grid), shards}},
                  {{.dp = 2, .tp = 2}, {on(2, 2, shards), on(4, 1), on(1, 1), on(1, 4)}},
                  {{.dp = 4}, {whole, on(1, 4, grid), on(2, 2), whole}},
                  {{.tp = 4}, {on(1, 1), on(4, 1), whole, on(1, 2, shards)}},
                  {{.dp = 2, .tp = 2, .inside_out = true}, {on(1, 4, grid), on(2, 1), whole, on(1, 2)}},
                  {{.pp = 2, .tp = 2}, {on(1, 1), on(2, 1), on(1, 2), on(1, 1)}}};
    if (world_size() == 8)
        trials = {{{.dp = 2, .tp = 4}, {on(1, 8, deep), whole, on(2, 4, grid), shards}},
                  {{.pp = 2, .cp = 2, .tp = 2}, {on(1, 4, grid), on(4, 1), on(1, 1), on(2, 2, shards)}},
                  {{.dp = 2, .pp = 2, .tp = 2, .inside_out = true}, {on(1, 4), on(4, 1), on(1, 1), whole}}};
    for (bool const has_experts : {false, true})
        for (auto const& trial : trials)
            for (int const stage : {0, 1, 3}) {
                auto settings = has_experts ? small_with_experts() : small_dense();
                if (has_experts)
                    for (auto const& block : trial.blocks)
                        if (block.tensor_kind != TensorKind::one_d) settings = small_dense(); // has no experts
                settings.strategy.batch = 32;
                settings.strategy.seq = 14; // is padded
                settings.strategy.block.row_parts = whole.row_parts;
                auto const expected = expected_numbers(settings);
                settings.strategy.blocks = trial.blocks;
                settings.strategy.sharding.stage = stage;
                auto const found = numbers<InvariantStream<f64>>(trial.mesh, settings, "1f1b");
                INFO(trial.mesh.text(), " experts ", has_experts, " zero ", stage);
                for (std::size_t i = 0; i < expected.size(); ++i)
                    CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-10));
            }
}

TEST_CASE("layers are dealt to stages by measured times: predictors, a tied table, blocks of their own") {
    int const n = world_size();
    model::BlockStrategy own{};
    own.mesh = model::BlockMesh{1, 1};
    for (bool const has_predictors : {false, true})
        for (auto const& m : std::vector<MeshShape>{{.pp = n}, {.dp = 2, .pp = n / 2}}) {
            auto settings = small_with_experts(); // tied
            settings.strategy.batch = 32;
            change(settings, [](auto& sizes) { sizes.layers = 8; });
            if (has_predictors) settings.model.predictors = {settings.model.blocks.back()};
            auto const expected = expected_numbers(settings);
            settings.strategy.balances_stages = true;
            settings.strategy.blocks = {{}, own, {}, own};
            auto const found = numbers<InvariantStream<f64>>(m, settings, "1f1b");
            INFO(m.text(), " predictors ", has_predictors);
            for (std::size_t i = 0; i < expected.size(); ++i)
                CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-10));
        }
}

TEST_CASE("blocks that cannot lie beside each other are refused") {
    auto const refusal = [](train::RunSettings const& settings) {
        try {
            (void)numbers<InvariantStream<f64>>({.tp = world_size()}, settings, "1f1b");
        } catch (std::invalid_argument const& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    auto settings = small_dense();
    settings.strategy.blocks.assign(5, whole);
    CHECK(refusal(settings) == "blocks[4] is beyond the blocks of the model: it has 4");
    settings.strategy.blocks = {shards, whole, whole, {.zigzag = true}};
    CHECK(refusal(settings) ==
          "blocks[3] differs from block in tensor_kind, context, inner_cp or zigzag, which all share");
    settings.strategy.blocks = {shards, whole, whole, {.row_parts = 0}};
    CHECK(refusal(settings) == "blocks[3].row_parts = 0 is less than 1");
}
