// ranks: 1 2 3 4 6
//
// Sequences of any length on any mesh. They are padded to what the mesh divides, and nobody sees it: losses, gradients
// and weights are those of one rank, which pads nothing.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/model/parts.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/train/sampler.hpp>
#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/parameters.hpp>
#include <support/training.hpp>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace support;

namespace {

/// What comes of two steps.
struct Run {
    std::vector<train::StepResult> results; ///< of the steps, then of an evaluation
    double validation = 0;
    std::map<std::string, Whole> weights{}; ///< of the stages here
    std::string sample{};
    std::size_t padding = 0;
};

struct Way {
    std::string schedule = "1f1b";
    int slices = 1, chunks = 0, inner_cp = 1;
};

/// A mixer that the library does not know: what it sees and says of it is a test's.
struct OwnMixer {
    static constexpr std::string_view kind = "own mixer";
    model::Attention attention;
    friend bool operator==(OwnMixer const&, OwnMixer const&) = default;
    [[nodiscard]] std::string text() const { return attention.text(); }
};
struct OwnMixerThatSays : OwnMixer {
    friend bool operator==(OwnMixerThatSays const&, OwnMixerThatSays const&) = default;
    [[nodiscard]] bool sees_later_tokens() const { return !attention.sight.causal; }
    [[nodiscard]] bool keeps_documents_apart() const { return true; }
    [[nodiscard]] std::size_t query_heads() const { return attention.heads; }
    [[nodiscard]] std::size_t key_value_heads() const { return attention.kv_heads; }
};
/// The library's layers, and those of the mixers above.
template <class Stream>
LayerRegistry<typename Stream::element, Exec> own_layers() {
    auto all = train::decoder_layers<typename Stream::element, Exec>();
    auto const as_attention = [layers = all]<class Own>(Own) {
        return [layers](LayerSetup<Exec> const& setup, model::Part const& part, std::string const& name) {
            return layers.make(setup, Stream::value, part.as<Own>()->attention, name);
        };
    };
    all.template add<OwnMixer, Stream>(as_attention(OwnMixer()))
        .template add<OwnMixerThatSays, Stream>(as_attention(OwnMixerThatSays()));
    return all;
}
/// The run with mixers of its own in place of its attention.
template <class Own>
train::RunSettings with_own_mixers(train::RunSettings run, Sight const& sight) {
    for (auto& block : run.model.blocks) {
        auto attention = *block.branches[0].part.as<model::Attention>();
        attention.sight = sight;
        Own own;
        own.attention = attention;
        block.branches[0].part = own;
    }
    return run;
}

bool is_causal(model::Model const& model) {
    return model::padding_refusal(model).empty() && !model::sees_later_tokens(model);
}

template <class Stream>
Run train_on(OnMesh const& mesh, train::RunSettings const& settings, Way const& way) {
    auto const pp = mesh.context.communicators().extent("pp");
    Training<Stream> training(
        mesh, settings,
        pipeline::generate(way.schedule, {.ranks = pp,
                                          .micro_batches = static_cast<int>(settings.strategy.micro_batches),
                                          .chunks = way.chunks,
                                          .slices = way.slices}),
        varied_text(), own_layers<Stream>());
    auto& trainer = training.trainer;
    Run run{.results = {trainer.step(1), trainer.step(2), trainer.evaluate(3)}, .padding = trainer.setup().padding};
    std::string const held_out = varied_text().substr(300, 200);
    run.validation =
        trainer.validate({held_out, "other text", static_cast<std::int64_t>(settings.strategy.seq), settings.seed}, 2)
            .loss;
    if (is_causal(settings.model))
        run.sample = train::sample(trainer, varied_text().substr(0, 2 * settings.strategy.seq), 6, 1);
    if (settings.strategy.sharding.stage < 3)
        trainer.model().for_each_parameter(
            [&](auto const& parameter) { run.weights[parameter.name()] = gather(parameter); });
    return run;
}

void same(Run const& found, Run const& expected) {
    auto const close = [](double value) { return doctest::Approx(value).epsilon(1e-11); };
    for (std::size_t i = 0; i < expected.results.size(); ++i) {
        CHECK(found.results[i].loss == close(expected.results[i].loss));
        CHECK(found.results[i].balance_loss == close(expected.results[i].balance_loss));
        CHECK(found.results[i].z_loss == close(expected.results[i].z_loss));
        CHECK(found.results[i].gradient_norm == close(expected.results[i].gradient_norm));
    }
    CHECK(found.validation == close(expected.validation));
    CHECK(found.sample == expected.sample);
    for (auto const& [name, weight] : found.weights)
        CHECK_MESSAGE(distance_with_padding(weight, expected.weights.at(name)) <= 1e-10, name);
}

train::RunSettings small_run(std::int64_t seq) {
    return {.model = model::decoder({.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 12, .vocab = 256}),
            .strategy = {.batch = 12, .micro_batches = 2, .seq = seq},
            .steps = 2,
            .learning_rate = 0.01,
            .warmup = 0};
}
train::RunSettings run_with_experts(std::int64_t seq) {
    auto run = small_run(seq);
    change(run, [](auto& sizes) { sizes.experts = 12; });
    run.balance_coefficient = 0.5;
    run.z_coefficient = 0.1;
    return run;
}

Run alone(train::RunSettings const& settings) {
    auto plain = settings;
    plain.strategy.block.zigzag = false;
    plain.strategy.block.context = ContextStrategy::ring;
    auto run = train_on<InvariantStream<f64>>(Alone(), plain, {});
    CHECK(run.padding == 0);
    return run;
}

/// The run on a mesh, with and without sequence parallelism, is that of one rank.
void same_on(MeshShape const& m, train::RunSettings const& settings, Run const& expected, Way const& way = {}) {
    INFO(m.text(), " seq ", settings.strategy.seq, " ", way.schedule, " ",
         settings.strategy.block.zigzag ? "zigzag" : "contiguous", " by ",
         std::string(name(settings.strategy.block.context)));
    OnMesh const mesh(m, OnMesh::mesh(m, static_cast<int>(sizes(settings.model).kv_heads), way.inner_cp));
    same(train_on<InvariantStream<f64>>(mesh, settings, way), expected);
    if (m.tp > 1) same(train_on<SequenceStream<f64>>(mesh, settings, way), expected);
}

/// Every mesh of this run's ranks, in one order and then the other.
void same_on_every_mesh(train::RunSettings settings) {
    auto const expected = alone(settings);
    auto const batch = static_cast<int>(settings.strategy.batch / settings.strategy.micro_batches);
    auto const experts = static_cast<int>(sizes(settings.model).experts);
    bool zigzag = false;
    for (auto const& m : meshes([&](MeshShape const& m) {
             return batch % (m.dp * m.ep) == 0 && m.pp <= 2 && 4 % m.tp == 0 && experts % m.ep == 0;
         })) {
        settings.strategy.block.zigzag = (zigzag = !zigzag);
        settings.strategy.sharding.stage = (settings.strategy.sharding.stage + 1) % 4;
        if (zigzag) settings.strategy.recompute = {.kind = model::Recomputation::Kind::full};
        same_on(m, settings, expected);
    }
}

/// cp over all ranks, in both orders.
void same_over_cp(train::RunSettings settings, Way const& way = {}) {
    auto const expected = alone(settings);
    for (auto const order : {Order::contiguous, Order::zigzag}) {
        settings.strategy.block.zigzag = order == Order::zigzag;
        same_on({.cp = world_size()}, settings, expected, way);
        if (world_size() % 2 == 0 && world_size() > 2)
            same_on({.cp = world_size() / 2, .tp = 2}, settings, expected, way);
    }
}

} // namespace

TEST_CASE("a length that no mesh divides gives on every mesh what it gives on one rank") {
    same_on_every_mesh(small_run(37));
}

TEST_CASE("experts do not see padding: neither their losses nor their rows") {
    same_on_every_mesh(run_with_experts(13));
}

TEST_CASE("the auxiliary losses alone: the router has gradients of tokens only") {
    auto run = run_with_experts(13);
    run.ignored = 7;
    auto const expected = train_on<InvariantStream<f64>>(Alone(), run, {});
    CHECK(expected.results[0].gradient_norm > 0);
    same_over_cp(run);
}

TEST_CASE("padding goes to no expert on other nodes") {
    if (world_size() != 4) return;
    auto run = run_with_experts(5);
    auto const expected = alone(run);
    setenv("PENTAD_RANKS_PER_NODE", "2", 1);
    same_on({.ep = 2, .cp = 2}, run, expected);
    same_on({.ep = 2, .cp = 2, .inside_out = true}, run, expected);
    same_on({.ep = 2, .tp = 2}, run, expected);
    unsetenv("PENTAD_RANKS_PER_NODE");
}

TEST_CASE("fewer tokens than ranks: some have padding alone") {
    for (std::size_t const seq : {1, 2, 5}) {
        same_over_cp(small_run(seq));
        same_over_cp(run_with_experts(seq));
    }
}

TEST_CASE("every strategy of attention over cp") {
    if (world_size() == 1) return;
    auto run = small_run(50);
    change(run, [](auto& sizes) { sizes.heads = 12, sizes.kv_heads = 6, sizes.hidden = 24; });
    int const inner = world_size() % 2 == 0 ? 2 : world_size();
    for (auto const strategy : {ContextStrategy::all_gather, ContextStrategy::double_ring, ContextStrategy::heads_ring,
                                ContextStrategy::ring_heads}) {
        run.strategy.block.context = strategy;
        auto const expected = alone(run);
        for (auto const order : {Order::contiguous, Order::zigzag}) {
            run.strategy.block.zigzag = order == Order::zigzag;
            same_on({.cp = world_size()}, run, expected, {.inner_cp = inner});
        }
    }
}

TEST_CASE("packed documents end with the sequence, and their work is dealt without padding") {
    auto run = run_with_experts(101);
    run.strategy.batch = 4;
    run.packing = Packing{.last = 9};
    same_over_cp(run);
    run.packing->deals_by_work = false;
    same_over_cp(run);
}

TEST_CASE("attention within a window, and to all tokens: nobody sees padding") {
    for (Sight const sight : {Sight{.window = 7}, Sight{.causal = false}, Sight{.causal = false, .window = 4}}) {
        auto run = small_run(29);
        for (auto& block : run.model.blocks)
            for (auto& branch : block.branches)
                if (auto const* part = branch.part.as<model::Attention>()) {
                    auto attention = *part;
                    attention.sight = sight;
                    branch.part = attention;
                }
        same_over_cp(run);
    }
}

TEST_CASE("a mixer of one's own that sees later tokens does not see padding, and one that does not say so is refused") {
    auto const run = small_run(29);
    Sight const later{.causal = false};
    same_over_cp(with_own_mixers<OwnMixerThatSays>(run, later));
    auto const silent = with_own_mixers<OwnMixer>(run, later);
    OnMesh const mesh({.cp = world_size()});
    auto const train = [&](train::RunSettings const& settings) {
        (void)train_on<InvariantStream<f64>>(mesh, settings, {});
    };
    std::string const padded = std::to_string((29 + world_size() - 1) / world_size() * world_size());
    if (29 % world_size() != 0)
        CHECK_THROWS_WITH_AS(
            train(silent),
            ("seq = 29 is padded on this mesh, and the part 'own mixer' does not say whether its tokens see later "
             "ones, which may be padding (sees_later_tokens()): make it " +
             padded)
                .c_str(),
            std::invalid_argument);
    else
        CHECK_NOTHROW(train(silent));
    auto packed = silent;
    packed.packing = Packing{.last = 9};
    packed.strategy.seq = 12 * world_size();
    CHECK_THROWS_WITH_AS(
        train(packed),
        "documents are packed, and the part 'own mixer' does not say that its tokens see none of other "
        "documents (keeps_documents_apart()): train without packing",
        std::invalid_argument);
}

TEST_CASE("a text is drawn from models whose tokens see no later ones") {
    OnMesh const mesh({.cp = world_size()});
    auto const draw = [&](train::RunSettings const& settings, std::string const& prompt = "text") {
        Training<InvariantStream<f64>> training(
            mesh, settings,
            pipeline::generate("1f1b",
                               {.ranks = 1, .micro_batches = static_cast<int>(settings.strategy.micro_batches)}),
            varied_text(), own_layers<InvariantStream<f64>>());
        return train::sample(training.trainer, prompt, 2, 1).size();
    };
    auto const run = small_run(12 * static_cast<std::size_t>(world_size()));
    CHECK(draw(with_own_mixers<OwnMixerThatSays>(run, {})) == 2);
    CHECK_THROWS_AS(draw(with_own_mixers<OwnMixerThatSays>(run, {.causal = false})), std::invalid_argument);
    CHECK_THROWS_AS(draw(with_own_mixers<OwnMixer>(run, {})), std::invalid_argument);
    auto few = run;
    few.model.vocab = 200;
    CHECK_THROWS_WITH_AS(draw(with_own_mixers<OwnMixerThatSays>(few, {}), "\xc8"),
                         "the prompt has the byte 200, and the model 200 tokens", std::invalid_argument);
}

TEST_CASE("learned positions: a table of as many as a sequence has tokens is enough") {
    auto run = small_run(11);
    run.model.positions = 11;
    same_over_cp(run);
}

TEST_CASE("slices of a sequence, of which the last ones may be padding") {
    int const n = world_size();
    for (std::size_t const seq : {std::size_t{37}, std::size_t{5}})
        for (bool const has_experts : {false, true}) {
            auto run = has_experts ? run_with_experts(seq) : small_run(seq);
            auto const expected = alone(run);
            for (auto const order : {Order::contiguous, Order::zigzag}) {
                run.strategy.block.zigzag = order == Order::zigzag;
                Way const way{.schedule = "terapipe", .slices = 3};
                if (n <= 2) same_on({.pp = n}, run, expected, way);
                if (n > 1 && n <= 3) same_on({.cp = n}, run, expected, way);
                if (n == 4) same_on({.pp = 2, .cp = 2}, run, expected, way);
                if (n == 4) same_on({.pp = 2, .tp = 2}, run, expected, way);
                if (n == 6 && has_experts) same_on({.pp = 2, .ep = 3}, run, expected, way);
            }
        }
}
