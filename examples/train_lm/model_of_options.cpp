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

model::Model with_window(model::Model described, std::int64_t window) {
    for (auto& block : described.blocks)
        for (auto& branch : block.branches)
            if (auto const* attention = branch.part.as<model::Attention>(); attention != nullptr && window > 0) {
                auto windowed = *attention;
                windowed.sight.window = size(window);
                branch.part = windowed;
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
    if (o.described) return with_window(*o.described, o.window);
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
    return with_window(model::with_mixers(decoder, model::mixers_of(o.mixers).value(), mamba_of(o), linear), o.window);
}

} // namespace train_lm
