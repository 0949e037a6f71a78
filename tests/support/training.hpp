// What tests of whole training steps share.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// Bytes below 40, none twice in a row: data for a vocabulary of 40 or more.
inline std::string varied_text() {
    std::string text;
    for (int i = 0; i < 997; ++i) text += static_cast<char>((i * i / 3 + 7 * i) % 39 + 1);
    return text;
}

/// The sizes of a model that model::decoder() has made, with as many experts and blocks of each kind.
inline model::DecoderSizes sizes(model::Model const& model) {
    model::DecoderSizes sizes{.layers = model.blocks.size(),
                              .hidden = model.hidden,
                              .vocab = model.vocab,
                              .ties_embeddings = model.ties_embeddings,
                              .norm_epsilon = model.norm_epsilon};
    for (std::size_t i = model.blocks.size(); i-- > 0;) {
        if (auto const* attention = model.find<model::Attention>(i)) {
            sizes.heads = attention->heads;
            sizes.kv_heads = attention->kv_heads;
            sizes.head_dim = attention->head_dim;
            sizes.rope_theta = attention->rotary.theta;
        }
        if (auto const* mlp = model.find<model::GatedMlp>(i)) sizes.ffn = mlp->width;
        if (auto const* experts = model.find<model::Experts>(i)) {
            sizes.ffn = experts->width;
            sizes.experts = experts->count;
            sizes.top_k = experts->top_k;
            sizes.moe_every = i + 1;
        }
    }
    return sizes;
}
/// The same run of a model with other sizes: change(run, [](auto& sizes) { sizes.experts = 4; }).
template <class Change>
void change(train::RunSettings& run, Change const& f) {
    auto changed = sizes(run.model);
    auto const before = changed;
    f(changed);
    if (changed.hidden != before.hidden || changed.heads != before.heads) changed.head_dim = 0;
    run.model = model::decoder(changed);
}

/// The same run of a model whose attention is latent, of the same heads and width.
inline void make_latent(train::RunSettings& run, std::size_t query_rank) {
    for (auto& block : run.model.blocks)
        for (auto& branch : block.branches)
            if (auto const* found = branch.part.as<model::Attention>()) {
                std::size_t const dim = found->head_dim;
                branch.part = model::LatentAttention{.heads = found->heads,
                                                     .head_dim = dim,
                                                     .rope_dim = dim / 2,
                                                     .value_dim = dim,
                                                     .query_rank = query_rank,
                                                     .kv_rank = 2 * dim};
            }
}

/// Two steps of a dense model of four blocks.
inline train::RunSettings small_dense() {
    return {.model = model::decoder({.layers = 4, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 32, .vocab = 50}),
            .strategy = {.batch = 16, .micro_batches = 4, .seq = 16},
            .steps = 2,
            .warmup = 1};
}
/// The same with experts in every second block, and tied embeddings.
inline train::RunSettings small_with_experts() {
    auto settings = small_dense();
    change(settings, [](auto& sizes) { sizes.experts = 4, sizes.moe_every = 2, sizes.ties_embeddings = true; });
    return settings;
}

/// How a run lies on a mesh of that shape.
inline Strategy on_mesh(MeshShape const& m, Strategy strategy) {
    strategy.dp = m.dp, strategy.pp = m.pp, strategy.ep = m.ep, strategy.cp = m.cp, strategy.tp = m.tp;
    strategy.experts = m.experts;
    if (m.inside_out) std::reverse(strategy.order.begin(), strategy.order.end());
    return strategy;
}

/// The mesh of a run by a schedule: dp is split where ZeRO's shards end.
inline auto mesh_of(MeshShape const& m, train::RunSettings const& settings, pipeline::Schedule const& schedule) {
    auto const kv_heads = static_cast<int>(sizes(settings.model).kv_heads);
    return train::for_schedule(OnMesh::mesh(m, kv_heads).split<dp>(std::max(1, settings.strategy.sharding.ranks)),
                               schedule);
}

/// A trainer on a mesh, and the text that it reads.
template <class Stream>
struct Training {
    std::string text;
    io::TokenData data;
    train::Trainer<typename Stream::element, Exec> trainer;

    /// By 1F1B.
    Training(OnMesh const& mesh, train::RunSettings const& settings, std::string bytes = varied_text())
        : Training(mesh, settings,
                   pipeline::generate("1f1b", {.ranks = mesh.context.communicators().extent("pp"),
                                               .micro_batches = static_cast<int>(settings.strategy.micro_batches)}),
                   std::move(bytes)) {}
    Training(OnMesh const& mesh, train::RunSettings const& settings, pipeline::Schedule schedule,
             std::string bytes = varied_text(),
             LayerRegistry<typename Stream::element, Exec> const& registry =
                 train::decoder_layers<typename Stream::element, Exec>())
        : text(std::move(bytes)),
          data(text, "the text", static_cast<std::int64_t>(settings.strategy.seq), settings.seed),
          trainer(mesh.context, Stream::value, settings, train::ProvenSchedules(std::move(schedule)), data, registry) {}
};

/// The loss and the norm of the gradient of steps [first, first + count), one after the other.
template <class Stream>
std::vector<double> steps(Training<Stream>& training, std::int64_t first, std::int64_t count) {
    std::vector<double> numbers;
    for (auto step = first; step < first + count; ++step) {
        auto const result = training.trainer.step(step);
        numbers.insert(numbers.end(), {result.loss, result.gradient_norm});
    }
    return numbers;
}

} // namespace support
