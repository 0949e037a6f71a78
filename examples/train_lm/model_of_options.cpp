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

/// What the flags say of all experts.
model::Model with_experts(model::Model described, Options const& o) {
    std::size_t layer = 0;
    for (auto& block : described.blocks) {
        for (auto& branch : block.branches)
            if (auto const* found = branch.part.as<model::Experts>()) {
                auto experts = *found;
                experts.router = router_of(o);
                if (o.described) {
                    experts.router = found->router;
                    if (!o.balance.empty()) experts.router.set_balance(o.balance);
                    experts.router.bias_rate = o.bias_rate;
                    experts.router.capacity = o.capacity;
                    experts.router.drop = router_of(o).drop;
                    branch.part = experts;
                    continue;
                }
                experts.shared = size(o.shared_experts);
                if (o.expert_ffn > 0) experts.width = size(o.expert_ffn);
                if (layer < size(o.dense_layers))
                    branch = {model::GatedMlp{size(o.ffn)}, "mlp", branch.norm};
                else
                    branch.part = experts;
            }
        ++layer;
    }
    return described;
}

} // namespace

model::Router router_of(Options const& o) {
    using enum model::RouterChoice;
    using enum model::RouterScore;
    model::Router router{.score = o.router == "sigmoid" ? sigmoid : softmax,
                         .choice = o.router == "expert-choice" ? expert_choice
                                   : o.router == "hash"        ? hash
                                   : o.router == "sinkhorn"    ? sinkhorn
                                                               : top_k,
                         .scale = o.route_scale,
                         .groups = size(o.expert_groups),
                         .top_groups = size(o.top_groups == 0 ? o.expert_groups : o.top_groups),
                         .jitter = o.router == "switch" ? 0.01 : 0,
                         .bias_rate = o.bias_rate,
                         .capacity = o.capacity,
                         .drop = o.drop == "score" ? model::Drop::score : model::Drop::position};
    bool const weighs_by_score = router.choice == expert_choice || router.choice == sinkhorn || o.router == "switch";
    router.renormalises = o.renormalise.empty() ? !weighs_by_score : o.renormalise == "on";
    router.set_balance(!o.balance.empty() ? o.balance : router.choice == top_k ? "aux" : "none");
    return router;
}

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
    if (o.described) return with_experts(with_attention(*o.described, o), o);
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
    return with_experts(
        with_attention(model::with_mixers(decoder, model::mixers_of(o.mixers).value(), mamba_of(o), linear), o), o);
}

} // namespace train_lm
