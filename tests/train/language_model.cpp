// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/executor.hpp>
#include <pentad/train/language_model.hpp>

#include <support/layer_check.hpp>

using namespace support;

namespace {

using Tokens = Layout<i32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>>>;
using Sums = Layout<f64, Dims<Dim<flat>>, Partial<dp, pp, cp>>;

constexpr std::size_t sequences = 2, length = 12;

/// A published model with the experts of a layer as one tensor, as the layer holds them.
Arrays published(std::string const& file) {
    Arrays arrays = golden(file);
    auto const experts = static_cast<std::size_t>(arrays.at("num_local_experts").values[0]);
    for (std::size_t layer = 0; experts > 0 && layer < 2; ++layer)
        for (char const* w : {"w1", "w2", "w3"})
            for (std::string const d : {"", "d"}) {
                std::string const prefix = d + "model.layers." + std::to_string(layer) + ".block_sparse_moe.experts.";
                std::string const name = std::string(".") + w + ".weight";
                Whole all{arrays.at(prefix + "0" + name).extents, {}};
                all.extents.insert(all.extents.begin(), experts);
                for (std::size_t e = 0; e < experts; ++e) {
                    auto const& one = arrays.at(prefix + std::to_string(e) + name).values;
                    all.values.insert(all.values.end(), one.begin(), one.end());
                }
                arrays[prefix + "{}" + name] = all;
            }
    return arrays;
}

/// Columns first ... first + length of the tokens [batch, seq + 1].
Whole columns(Whole const& tokens, std::size_t first) {
    Whole part{{sequences, length}, {}};
    for (std::size_t s = 0; s < sequences; ++s)
        for (std::size_t i = 0; i < length; ++i) part.values.push_back(tokens.values[s * (length + 1) + first + i]);
    return part;
}

struct Variant {
    Order order;
    ContextStrategy strategy;
    bool recompute, gpipe, pads;
};

template <class Stream>
void check_model(Arrays const& arrays, MeshShape const& m, Variant const& how) {
    INFO(m.text(), std::string(how.order == Order::zigzag ? " zigzag" : ""),
         std::string(how.recompute ? " recomputed, " : ", "), std::string(how.pads ? "padding, " : ""),
         layout_text<Stream>.view());
    OnMesh const mesh(m, 2);
    auto const count = [&](char const* name) { return static_cast<std::size_t>(arrays.at(name).values[0]); };
    auto described = model::decoder({.layers = 2,
                                     .hidden = count("hidden_size"),
                                     .heads = count("num_attention_heads"),
                                     .kv_heads = count("num_key_value_heads"),
                                     .ffn = count("intermediate_size"),
                                     .vocab = count("vocab_size"),
                                     .experts = count("num_local_experts"),
                                     .top_k = count("num_experts_per_tok"),
                                     .ties_embeddings = count("tie_word_embeddings") == 1});
    if (how.pads) described.padding_token = count("pad_token_id");
    LayerSetup<Exec> const setup{.context = mesh.context,
                                 .hidden = described.hidden,
                                 .batch = sequences,
                                 .seq = length,
                                 .block = {.context = how.strategy, .zigzag = how.order == Order::zigzag}};
    using Model = train::LanguageModel<f64, Exec>;
    auto const schedule = pipeline::generate(how.gpipe ? "gpipe" : "1f1b", {.ranks = m.pp, .micro_batches = 1});
    Model model({setup, Stream::value}, described, train::decoder_layers<f64, Exec>(),
                train::stages_of(schedule, mesh.communicators.coordinate("pp"), train::even_layers(2, m.pp), 2),
                {.kind = how.recompute ? model::Recomputation::Kind::full : model::Recomputation::Kind::none});
    Parameters<f64> const parameters(model, [&](std::string const& name) { return arrays.at(name); });
    auto const tokens = shard<Tokens>(mesh, columns(arrays.at("tokens"), 0), how.order);
    auto const targets = shard<Tokens>(mesh, columns(arrays.at("tokens"), 1), how.order);
    std::vector<Pass<Exec>> passes;
    passes.push_back({.context = mesh.context,
                      .tokens = tokens.view(),
                      .targets = targets.view(),
                      .loss_scale = 1.0 / (sequences * length),
                      .balance_scale = arrays.at("aux_coef").values[0],
                      .z_scale = arrays.at("z_coef").values[0]});
    train::Executor<Model, f64, Exec> executor(mesh.context, model);
    executor.run(schedule, passes);

    Tensor<Sums, Exec> const sums(mesh.context, {1});
    auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), sums.summands());
    host(0) = passes[0].loss_sum / (sequences * length);
    Kokkos::deep_copy(sums.summands(), host);
    auto const total = on_host(redistribute<invariant_t<Sums>>(sums));
    CHECK(total(0) == doctest::Approx(arrays.at("loss").values[0]).epsilon(1e-13));
    if (arrays.contains("aux_loss")) {
        std::array<double, 2> auxiliary{passes[0].balance_sum, passes[0].z_sum};
        train::total_over_mesh(mesh.context, Placement::partial, std::span(auxiliary));
        CHECK(auxiliary[0] == doctest::Approx(arrays.at("aux_loss").values[0]).epsilon(1e-13));
        CHECK(auxiliary[1] == doctest::Approx(arrays.at("z_loss").values[0]).epsilon(1e-13));
    }
    model.for_each_parameter([&](auto const& parameter) {
        bool const pads = how.pads && parameter.name() == "model.embed_tokens.weight";
        auto const& expected = arrays.at("d" + parameter.name() + (pads ? "_padding" : ""));
        CHECK_MESSAGE(distance_with_padding(reduced_gradient(parameter), expected) < 1e-11, "the gradient of ",
                      parameter.name());
    });
}

bool fits(MeshShape const& m) {
    return 2 % (m.dp * m.ep) == 0 && 2 % m.pp == 0 && 12 % m.cp == 0 && (m.tp == 1 || m.tp == 2 || m.tp == 4);
}

/// Every mesh, each with other variants of the rest.
void check_models(std::string const& file) {
    Arrays const arrays = published(file);
    int number = 0;
    auto const next = [&number](MeshShape const& m) {
        ++number;
        return Variant{6 % m.cp == 0 && number % 3 != 0 ? Order::zigzag : Order::contiguous,
                       number % 2 == 0 ? ContextStrategy::ring : ContextStrategy::all_gather, number % 4 < 2,
                       number % 5 < 2, number % 7 < 3};
    };
    for (auto const& m : meshes(fits)) check_model<InvariantStream<f64>>(arrays, m, next(m));
    for (auto const& m : meshes([](MeshShape const& m) { return fits(m) && 12 % (m.cp * m.tp) == 0; }))
        check_model<SequenceStream<f64>>(arrays, m, next(m));
}

} // namespace

TEST_CASE("a dense model is LLaMA as PyTorch computes it, on any mesh: the loss and every gradient") {
    check_models("llama");
}
TEST_CASE("tied embeddings: one table at both ends of the pipeline, and one gradient") { check_models("llama_tied"); }
TEST_CASE("a model of experts is Mixtral as PyTorch computes it, on any mesh: all losses and every gradient") {
    check_models("mixtral");
}
