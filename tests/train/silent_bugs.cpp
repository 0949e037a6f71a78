// ranks: 1 2 3 4 6
//
// The silent bugs of other systems (docs/silent-bugs.md), each looked for in whole training steps: on every mesh the
// losses and the norm of the gradient are those of one rank. The norm sees every gradient of the model at once.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <string>
#include <vector>

using namespace support;

namespace {

/// A step or two of training with f64.
using Steps = std::vector<train::StepResult>;

template <class Stream>
Steps train_on(OnMesh const& mesh, train::RunSettings const& settings, std::string const& text) {
    Training<Stream> training(mesh, settings, text);
    return {training.trainer.step(1), training.trainer.step(2)};
}

/// 2 layers, 12 sequences of 12 tokens. What a test is about is set by the test.
train::RunSettings small_run() {
    return {.model = model::decoder({.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 12, .vocab = 40}),
            .strategy = {.batch = 12, .micro_batches = 2, .seq = 12},
            .steps = 2,
            .learning_rate = 0.01,
            .warmup = 0};
}

bool fits(train::RunSettings const& s, MeshShape const& m) {
    std::size_t const batch_ranks = static_cast<std::size_t>(m.dp * m.ep),
                      tensor_ranks = static_cast<std::size_t>(m.tp);
    return s.strategy.batch / s.strategy.micro_batches % batch_ranks == 0 && m.pp <= 2 &&
           s.strategy.seq % static_cast<std::size_t>(2 * m.cp) == 0 && sizes(s.model).heads % tensor_ranks == 0 &&
           sizes(s.model).experts % static_cast<std::size_t>(m.ep) == 0;
}

void same(Steps const& found, Steps const& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        auto const close = [](double value) { return doctest::Approx(value).epsilon(1e-11); };
        CHECK(found[i].loss == close(expected[i].loss));
        CHECK(found[i].balance_loss == close(expected[i].balance_loss));
        CHECK(found[i].z_loss == close(expected[i].z_loss));
        CHECK(found[i].prediction_loss == close(expected[i].prediction_loss));
        CHECK(found[i].gradient_norm == close(expected[i].gradient_norm));
    }
}

/// Trains on one rank, then on every mesh of this run's ranks, with and without sequence parallelism. Returns what one
/// rank found.
Steps same_on_every_mesh(train::RunSettings settings, std::string const& text) {
    Steps const alone = train_on<InvariantStream<f64>>(Alone(), settings, text);
    bool zigzag = false;
    auto all = meshes([&](MeshShape const& m) { return fits(settings, m); });
    if (std::size_t const experts = sizes(settings.model).experts; experts > 0) {
        auto const folded = foldings([&](MeshShape const& m) { return fits(settings, m); },
                                     [&](model::ExpertMesh const& on) {
                                         return experts % static_cast<std::size_t>(on.ep) == 0 &&
                                                sizes(settings.model).ffn % static_cast<std::size_t>(on.etp) == 0;
                                     });
        for (std::size_t i = 0; i < folded.size(); i += 1 + folded.size() / 4) all.push_back(folded[i]);
    }
    for (auto const& m : all) {
        INFO(m.text());
        settings.strategy.block.zigzag = (zigzag = !zigzag);
        if (zigzag) settings.strategy.recompute = {.kind = model::Recomputation::Kind::full};
        settings.strategy.sharding.stage = 0;
        OnMesh const mesh(m, sizes(settings.model).kv_heads);
        same(train_on<InvariantStream<f64>>(mesh, settings, text), alone);
        bool const divides = settings.strategy.seq % static_cast<std::size_t>(m.cp * m.tp) == 0;
        settings.strategy.sharding.stage = 1;
        if (divides) same(train_on<SequenceStream<f64>>(mesh, settings, text), alone);
    }
    return alone;
}

} // namespace

TEST_CASE("all gradients, norm weights among them, are whole under sequence parallelism") {
    same_on_every_mesh(small_run(), varied_text());
}

TEST_CASE("the norm of the gradient counts each element once, over edp x ep x etp too") {
    auto run = small_run();
    change(run, [&](auto& sizes) { sizes.experts = 12; });
    same_on_every_mesh(run, varied_text());
}

TEST_CASE("the gradient of the auxiliary losses does not depend on tp, cp or sequence parallelism") {
    auto run = small_run();
    change(run, [&](auto& sizes) { sizes.experts = 12; });
    run.ignored = 7;
    run.balance_coefficient = 1;
    run.z_coefficient = 1;
    std::string const text(run.strategy.seq + 1, 7); // no target counts: all gradients come from the auxiliary losses
    auto const alone = same_on_every_mesh(run, text);
    CHECK(alone[0].loss == 0);
    CHECK(alone[0].gradient_norm > 1e-3);
}

TEST_CASE("one valid token: the loss is not divided by the ranks that have none") {
    auto run = small_run();
    run.ignored = 7;
    for (std::size_t const at :
         {std::size_t{1}, std::size_t{6},
          static_cast<std::size_t>(run.strategy.seq)}) { // the first, a middle and the last target
        std::string text(static_cast<std::size_t>(run.strategy.seq) + 1, 7);
        text[at] = 9;
        CHECK(same_on_every_mesh(run, text)[0].loss > 1);
    }
}

TEST_CASE("valid tokens in unequal numbers on the ranks and in the micro-batches: the mean is that of the tokens") {
    auto run = small_run();
    run.ignored = 7;
    std::string text = varied_text();
    for (std::size_t i = 0; i < text.size(); ++i)
        if (i / 31 % 3 != 0) text[i] = 7; // most windows have few valid targets, or none
    same_on_every_mesh(run, text);
}

TEST_CASE("tied embeddings: both ends of the pipeline add to one gradient, which counts once") {
    auto run = small_run();
    change(run, [&](auto& sizes) { sizes.ties_embeddings = true; });
    same_on_every_mesh(run, varied_text());
}

TEST_CASE("tokens further ahead are those of the sequence, on whatever rank they are, and none beyond its end") {
    auto run = small_run();
    run.ignored = 7;
    auto const once = same_on_every_mesh(run, varied_text());
    run.model.predictors.assign(2, run.model.blocks.back());
    auto const alone = same_on_every_mesh(run, varied_text());
    CHECK(alone[0].loss == once[0].loss); // of the next token: the predictors only add to the gradient
    CHECK(alone[0].prediction_loss > 1);
    CHECK(alone[0].gradient_norm > once[0].gradient_norm);
}

TEST_CASE("experts that every token meets have whole gradients, and their input has those of both kinds") {
    auto run = small_run();
    change(run, [&](auto& sizes) { sizes.experts = 12; });
    for (auto& block : run.model.blocks)
        for (auto& branch : block.branches)
            if (auto const* const found = branch.part.as<model::Experts>()) {
                auto experts = *found;
                experts.shared = 1;
                branch.part = experts;
            }
    same_on_every_mesh(run, varied_text());
}

TEST_CASE("kv heads that tp exceeds: the ranks that share one sum its gradient, and the norm counts it once") {
    auto run = small_run();
    change(run, [&](auto& sizes) { sizes.kv_heads = 1; });
    same_on_every_mesh(run, varied_text());
}

TEST_CASE("sinks of heads: the ranks that share the sequence sum their gradients, and the norm counts each once") {
    auto run = small_run();
    for (auto& block : run.model.blocks) {
        auto attention = *block.branches[0].part.as<model::Attention>();
        attention.scores.sinks = true;
        block.branches[0].part = attention;
    }
    same_on_every_mesh(run, varied_text());
}

TEST_CASE("experts without a token: all the same tokens go to the same experts, and nobody waits for the others") {
    auto run = small_run();
    change(run, [&](auto& sizes) { sizes.experts = 12; });
    auto const alone = same_on_every_mesh(run, std::string(run.strategy.seq + 1, 3));
    CHECK(alone[0].balance_loss > 4); // two layers, 2 each where all experts have their share
}
