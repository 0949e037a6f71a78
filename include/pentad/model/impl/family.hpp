// The functions of <pentad/model/family.hpp>.
#pragma once

#include <pentad/model/family.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <utility>

namespace pentad::model::detail {

/// Of a model with Mamba-2: all blocks that, or that and attention, which are alike wherever they are, with MLPs.
PENTAD_INLINE std::optional<Family> recurrent_family(Model const& model) {
    auto const& mixer = *model.first<Mamba2>();
    if (mixer.norm_groups != mixer.groups || mixer.inner() % model.hidden != 0) return std::nullopt;
    auto const all = [&](auto const& holds) { return std::all_of(model.blocks.begin(), model.blocks.end(), holds); };
    Block const alone{{{mixer, "mixer", "norm"}}};
    // transformers' Mamba-2 is the one whose embedding knows of no padding.
    if (all([&](Block const& block) { return block == alone; }))
        return model.padding_token ? std::nullopt : std::optional(Family::mamba2);
    auto const* mlp = model.first<GatedMlp>();
    if (mlp == nullptr) return std::nullopt;
    Branch const second{*mlp, "feed_forward", "pre_ff_layernorm"};
    Block const with_mixer{{{mixer, "mamba", "input_layernorm"}, second}};
    Block with_attention = with_mixer;
    if (auto const* attention = model.first<Attention>()) {
        auto const expected = Attention{.heads = attention->heads,
                                        .kv_heads = attention->kv_heads,
                                        .head_dim = model.hidden / attention->heads,
                                        .rotary = attention->rotary};
        if (attention->rotary.share != 0.5) return std::nullopt;
        with_attention.branches[0] = {expected, "self_attn", "input_layernorm"};
    }
    if (!all([&](Block const& block) { return block == with_mixer || block == with_attention; })) return std::nullopt;
    return Family::bamba;
}

/// Of a model with latent attention: DeepSeek-V3 where the first blocks have MLPs and all others its experts.
PENTAD_INLINE std::optional<Family> latent_family(Model const& model) {
    auto const& mixer = *model.find<LatentAttention>(0);
    if (!(mixer.sight == Sight{}) || !(mixer.rotary.scaling == RotaryScaling{}) || mixer.rotary.share != 1)
        return std::nullopt;
    Branch const attention{mixer, "self_attn", "input_layernorm"};
    auto const* const experts = model.first<Experts>();
    auto const* const mlp = model.first<GatedMlp>();
    if (experts == nullptr || mlp == nullptr) return std::nullopt;
    auto const& router = experts->router;
    if (router.score != RouterScore::sigmoid || router.choice != RouterChoice::top_k || !router.has_bias ||
        experts->shared == 0)
        return std::nullopt;
    Block const dense{{attention, {*mlp, "mlp", "post_attention_layernorm"}}};
    Block const sparse{{attention, {*experts, "block_sparse_moe", "post_attention_layernorm"}}};
    auto const& blocks = model.blocks;
    auto const last_dense = std::find_if(blocks.begin(), blocks.end(), [&](Block const& b) { return !(b == dense); });
    if (!std::all_of(last_dense, blocks.end(), [&](Block const& b) { return b == sparse; })) return std::nullopt;
    return Family::deepseek_v3;
}

/// Whether a checkpoint says all of its router, but for what is a matter of training: losses, jitter, capacity.
PENTAD_INLINE bool has_usual_router(Experts const& experts) {
    Router usual = experts.router;
    usual.score = RouterScore::softmax;
    usual.choice = RouterChoice::top_k;
    usual.scale = 1;
    usual.groups = usual.top_groups = 1;
    return usual == experts.router && !usual.has_bias && experts.shared == 0;
}

} // namespace pentad::model::detail

namespace pentad::model {

PENTAD_INLINE std::optional<Family> family_of(Model const& model) {
    if (model.blocks.empty()) return std::nullopt;
    if (model.first<Mamba2>() != nullptr) return detail::recurrent_family(model);
    if (model.find<LatentAttention>(0) != nullptr) return detail::latent_family(model);
    auto const* first = model.find<Attention>(0);
    std::optional<Part> mlp, experts; // of all blocks that have them
    std::size_t window = 0, windows = 0;
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
        auto const& block = model.blocks[i];
        auto const* attention = model.find<Attention>(i);
        if (first == nullptr || attention == nullptr || block.branches.size() != 2) return std::nullopt;
        if (!first->rotates || !(first->scores == Scores())) return std::nullopt;
        auto const& [mixer, other] = std::pair(block.branches[0], block.branches[1]);
        bool const is_dense = other.part.as<GatedMlp>() != nullptr;
        auto expected = *first; // but for the window, which some blocks may not have
        if (expected.rotary.share != 1 || expected.rotary.is_interleaved || expected.rotary.yarn.factor != 1)
            return std::nullopt;
        expected.sight = {.causal = true, .window = attention->sight.window};
        if (!(mixer == Branch{expected, "self_attn", "input_layernorm"})) return std::nullopt;
        if (attention->sight.window > 0) {
            if (window > 0 && window != attention->sight.window) return std::nullopt;
            window = attention->sight.window;
            ++windows;
        }
        auto& seen = is_dense ? mlp : experts;
        if (!seen) seen = other.part;
        if (!is_dense && other.part.as<Experts>() == nullptr) return std::nullopt;
        if (!(other == Branch{*seen, is_dense ? "mlp" : "block_sparse_moe", "post_attention_layernorm"}))
            return std::nullopt;
    }
    if (experts && !detail::has_usual_router(*experts->as<Experts>())) return std::nullopt;
    bool const renormalises = !experts || experts->as<Experts>()->router.renormalises;
    if (first->has_bias) return first->norms_queries_and_keys || experts ? std::nullopt : std::optional(Family::qwen2);
    if (first->norms_queries_and_keys) return experts ? Family::qwen3_moe : Family::qwen3;
    bool const is_mixed = windows > 0 && windows < model.blocks.size();
    if (is_mixed || (experts && (mlp || !renormalises))) return std::nullopt;
    return experts ? Family::mixtral : windows > 0 ? Family::mistral : Family::llama;
}

PENTAD_INLINE std::string published_name(std::optional<Family> family, std::string name) {
    if (family == Family::mamba2) {
        static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> starts{
            {{"model.layers.", "backbone.layers."},
             {"model.embed_tokens.", "backbone.embeddings."},
             {"model.norm.", "backbone.norm_f."}}};
        for (auto const& [own, published] : starts)
            if (name.starts_with(own)) return std::string(published) + name.substr(own.size());
    }
    if (family == Family::bamba && name == "model.norm.weight") return "model.final_layernorm.weight";
    if (family != Family::qwen3_moe && family != Family::deepseek_v3) return name;
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> parts{
        {{".block_sparse_moe.", ".mlp."}, {".w1.", ".gate_proj."}, {".w2.", ".down_proj."}, {".w3.", ".up_proj."}}};
    if (name.find(parts[0].first) == std::string::npos) return name;
    for (auto const& [own, published] : parts)
        if (auto const at = name.find(own); at != std::string::npos) name.replace(at, own.size(), published);
    return name;
}

} // namespace pentad::model
