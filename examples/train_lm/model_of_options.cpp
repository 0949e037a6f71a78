// The model that the options describe.
#include "options.hpp"

#include <pentad/model/decoder.hpp>
#include <pentad/model/mixers.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace train_lm {

namespace {

namespace model = pentad::model;

constexpr std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// What the flags say of all attention.
model::Model with_attention(model::Model described, Options const& o) {
    for (auto& block : described.blocks)
        for (auto& branch : block.branches)
            if (auto const* found = branch.part.as<model::Attention>()) {
                auto attention = *found;
                if (o.window > 0) attention.sight.window = size(o.window);
                if (o.soft_cap > 0) attention.scores.soft_cap = o.soft_cap;
                if (o.attention_sinks) attention.scores.sinks = true;
                if (o.positions != "rope") {
                    attention.rotates = false;
                    attention.scores.alibi = o.positions == "alibi";
                }
                branch.part = attention;
            }
    return described;
}

} // namespace

model::Mamba2 mamba_of(Options const& o) {
    std::size_t const heads = size(std::max<std::int64_t>(o.heads, 1));
    return {.heads = size(o.expand) * heads,
            .head_dim = size(o.hidden) / heads,
            .state = size(o.state),
            .groups = size(o.groups),
            .norm_groups = size(o.groups),
            .convolution = size(o.conv),
            .chunk = size(o.chunk)};
}

model::Model make_model(Options const& o) {
    if (o.described) return with_attention(*o.described, o);
    auto const decoder = model::decoder({.layers = size(o.layers),
                                         .hidden = size(o.hidden),
                                         .heads = size(o.heads),
                                         .kv_heads = size(o.kv_heads),
                                         .ffn = size(o.ffn),
                                         .vocab = size(o.vocab),
                                         .experts = size(o.experts),
                                         .top_k = size(o.top_k),
                                         .moe_every = size(o.moe_every),
                                         .ties_embeddings = o.tie_embeddings});
    model::LinearAttention const linear{
        .heads = size(o.heads), .head_dim = size(o.hidden / o.heads), .chunk = size(o.chunk)};
    return with_attention(model::with_mixers(decoder, model::mixers_of(o.mixers).value(), mamba_of(o), linear), o);
}

} // namespace train_lm
