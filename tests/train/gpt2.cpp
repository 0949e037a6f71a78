// ranks: 1 2 3 4
//
// A model of GPT-2's parts (LayerNorm, biases, learned positions, GELU), one with shared experts, and one that predicts
// several tokens: the loss and every gradient are those of one rank on any mesh, and on one rank the gradients are
// slopes of the loss.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/model/presets.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/executor.hpp>
#include <pentad/train/language_model.hpp>

#include <support/layer_check.hpp>

#include <algorithm>

using namespace support;

namespace {

using Tokens = Layout<i32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>>>;
using Sums = Layout<f64, Dims<Dim<flat>>, Partial<dp, pp, cp>>;

constexpr std::size_t sequences = 4, length = 12, vocabulary = 21;

/// All parameters are drawn, also those that begin as ones and zeros.
Whole value_of(auto const& parameter) {
    auto const& extents = parameter.global_extents();
    Whole whole =
        drawn({extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(parameter.stored_layout().rank)},
              parameter.name());
    for (auto& value : whole.values) value *= 0.2;
    return whole;
}
Whole token_ids(std::size_t shift) {
    Whole whole{{sequences, length}, {}};
    for (std::size_t i = 0; i < sequences * length; ++i)
        whole.values.push_back(static_cast<double>(((i + shift) * (i + shift) * 5 + 3 * i) % vocabulary));
    return whole;
}
/// Those so far ahead, as targets: the last of each sequence have none.
Whole targets_ahead(std::size_t ahead) {
    auto whole = token_ids(ahead + 1);
    for (std::size_t i = 0; i < sequences; ++i)
        for (std::size_t k = 0; k < ahead; ++k) whole.values[(i + 1) * length - 1 - k] = -1;
    return whole;
}
constexpr double predicted_scale = 0.35;

/// The loss and the gradients of a model on a mesh.
template <class Stream>
struct ModelRun {
    using Model = train::LanguageModel<f64, Exec>;

    OnMesh const& mesh;
    Order order;
    pipeline::Schedule schedule;
    LayerSetup<Exec> setup;
    std::size_t predictors;
    Model model;
    std::deque<Kokkos::View<f64*, typename Exec::memory_space>> values{}, gradients{};

    ModelRun(OnMesh const& on, model::Model const& described, Order dealt, model::Recomputation const& recompute)
        : mesh(on), order(dealt), schedule(pipeline::generate("1f1b", {.ranks = on.shape.pp, .micro_batches = 1})),
          setup{.context = on.context,
                .hidden = described.hidden,
                .batch = sequences,
                .seq = length,
                .block = {.zigzag = dealt == Order::zigzag}},
          predictors(described.predictors.size()),
          model({setup, Stream::value}, described, train::decoder_layers<f64, Exec>(),
                train::stages_of(schedule, on.communicators.coordinate("pp"), train::even_layers(2, on.shape.pp), 2),
                recompute) {
        model.for_each_parameter([&](auto& parameter) {
            values.emplace_back("value", parameter.size());
            gradients.emplace_back("gradient", parameter.size());
            parameter.place_value(values.back().data());
            parameter.place_gradient(gradients.back().data());
            fill(parameter, value_of(parameter));
        });
    }
    /// Adds to the gradients.
    double loss() {
        auto const tokens = shard<Tokens>(mesh, token_ids(0), order),
                   targets = shard<Tokens>(mesh, token_ids(1), order);
        std::vector<Tensor<Tokens, Exec>> further;
        std::vector<TokensAhead<Exec>> ahead;
        for (std::size_t k = 1; k <= predictors; ++k) {
            further.push_back(shard<Tokens>(mesh, token_ids(k), order));
            further.push_back(shard<Tokens>(mesh, targets_ahead(k), order));
        }
        for (std::size_t k = 0; k < predictors; ++k)
            ahead.push_back({further[2 * k].view(), further[2 * k + 1].view()});
        std::vector<Pass<Exec>> passes;
        passes.push_back({.context = mesh.context,
                          .tokens = tokens.view(),
                          .targets = targets.view(),
                          .ahead = ahead,
                          .predicted_scale = predicted_scale,
                          .loss_scale = 1.0 / (sequences * length)});
        train::Executor<Model, f64, Exec> executor(mesh.context, model);
        executor.run(schedule, passes);
        Tensor<Sums, Exec> const sum(mesh.context, {1});
        auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), sum.summands());
        host(0) = (passes[0].loss_sum + predicted_scale * passes[0].predicted_sum) / (sequences * length);
        Kokkos::deep_copy(sum.summands(), host);
        return on_host(redistribute<invariant_t<Sums>>(sum))(0);
    }
};

model::Recomputation recomputed(int variant) {
    using Kind = model::Recomputation::Kind;
    using model::Piece;
    switch (variant % 4) {
    case 0:
        return {.kind = Kind::full};
    case 1:
        return {.kind = Kind::selective};
    case 2:
        return {.kind = Kind::selective, .pieces = {Piece::norms, Piece::attention}};
    default:
        return {};
    }
}

template <class Stream>
void check(MeshShape const& m, model::Model const& described, int variant) {
    Alone const alone;
    ModelRun<InvariantStream<f64>> one(alone, described, Order::contiguous, {});
    double const expected = one.loss();
    Arrays arrays;
    one.model.for_each_parameter(
        [&](auto const& parameter) { arrays[parameter.name()] = reduced_gradient(parameter); });

    INFO(m.text(), layout_text<Stream>.view());
    OnMesh const mesh(m, described.first<model::Attention>()->kv_heads);
    ModelRun<Stream> trial(mesh, described, 6 % m.cp == 0 && variant % 2 == 0 ? Order::zigzag : Order::contiguous,
                           recomputed(variant));
    CHECK(trial.loss() == doctest::Approx(expected).epsilon(1e-13));
    trial.model.for_each_parameter([&](auto const& parameter) {
        Whole const& alone_has = arrays.at(parameter.name());
        // That of the bias of keys is zero: attention does not see it without rotary embedding.
        double const scale = *std::max_element(alone_has.values.begin(), alone_has.values.end()) < 1e-12 ? 1e-12 : 1;
        CHECK_MESSAGE(scale * distance_with_padding(reduced_gradient(parameter), alone_has) < 1e-11, "the gradient of ",
                      parameter.name());
    });
}

void check_meshes(model::Model const& described) {
    auto const fits = [&](MeshShape const& m) {
        return 4 % (m.dp * m.ep) == 0 && 2 % m.pp == 0 && 12 % m.cp == 0 && (m.tp == 1 || m.tp == 2 || m.tp == 4);
    };
    int variant = 0;
    for (auto const& m : meshes(fits)) check<InvariantStream<f64>>(m, described, variant++);
    for (auto const& m : meshes([&](MeshShape const& m) { return fits(m) && 12 % (m.cp * m.tp) == 0; }))
        check<SequenceStream<f64>>(m, described, variant++);
}

void check_slopes(model::Model const& described, model::Recomputation const& recompute) {
    Alone const alone;
    ModelRun<InvariantStream<f64>> trial(alone, described, Order::contiguous, recompute);
    (void)trial.loss();
    Arrays gradients; // each loss adds to them
    trial.model.for_each_parameter(
        [&](auto const& parameter) { gradients[parameter.name()] = reduced_gradient(parameter); });
    trial.model.for_each_parameter([&](auto const& parameter) {
        check_differences(
            parameter.name(), gather(parameter), gradients.at(parameter.name()),
            [&](Whole const& at) { fill(parameter, at); }, [&] { return trial.loss(); });
    });
}

model::Model small_gpt2() { return model::gpt2(2, 16, 4, 24, vocabulary, 16); }

model::Model with_shared_experts() {
    auto model = model::decoder({.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 12, .vocab = vocabulary});
    for (auto& block : model.blocks)
        block.branches[1].part = model::Experts{.count = 4, .top_k = 2, .width = 12, .shared = 2};
    return model;
}

model::Model that_predicts(std::size_t predictors, bool is_tied) {
    auto model = model::decoder({.layers = 2,
                                 .hidden = 16,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .ffn = 12,
                                 .vocab = vocabulary,
                                 .ties_embeddings = is_tied});
    model.predictors.assign(predictors, model.blocks.back());
    return model;
}

} // namespace

TEST_CASE("GPT-2's parts give the numbers of one rank on any mesh") { check_meshes(small_gpt2()); }

TEST_CASE("shared experts beside routed ones give the numbers of one rank on any mesh") {
    check_meshes(with_shared_experts());
}

TEST_CASE("multi-token prediction gives the numbers of one rank on any mesh") {
    check_meshes(that_predicts(1, false));
    check_meshes(that_predicts(2, true));
}

TEST_CASE("their gradients are slopes of the loss") {
    if (world_size() > 1) return;
    check_slopes(that_predicts(2, false), {});
    check_slopes(that_predicts(1, true), recomputed(0));
    check_slopes(small_gpt2(), {});
    for (int const variant : {1, 2}) check_slopes(small_gpt2(), recomputed(variant));
}

TEST_CASE("a sequence that is longer than the learned positions is refused") {
    if (world_size() > 1) return;
    Alone const alone;
    auto const make = [&] {
        ModelRun<InvariantStream<f64>> const run(alone, model::gpt2(2, 16, 4, 24, vocabulary, 8), Order::contiguous,
                                                 {});
    };
    CHECK_THROWS_WITH_AS(make(), "seq = 12 is more than the 8 positions of the model", std::invalid_argument);
}
