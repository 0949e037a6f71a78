// The functions of <pentad/model/family.hpp>.
#pragma once

#include <pentad/model/family.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace pentad::model::detail {

/// Whether all blocks are alike and hold nothing but Mamba-2.
PENTAD_INLINE bool is_mamba2(Model const& model) {
    auto const& mixer = *model.first<Mamba2>();
    Block const alone{{{mixer, "mixer", "norm"}}};
    return std::all_of(model.blocks.begin(), model.blocks.end(), [&](Block const& block) { return block == alone; });
}

/// Whether each block has Mamba-2 or attention, alike in all blocks that have it, and an MLP.
PENTAD_INLINE bool is_bamba(Model const& model) {
    auto const* mixer = model.first<Mamba2>();
    auto const* mlp = model.first<GatedMlp>();
    auto const* attention = model.first<Attention>();
    if (mlp == nullptr) return false;
    std::vector<Block> known;
    auto const know = [&](Part const& part, std::string const& name) {
        known.push_back({{{part, name, "input_layernorm"}, {*mlp, "feed_forward", "pre_ff_layernorm"}}});
    };
    if (mixer != nullptr) know(*mixer, "mamba");
    if (attention != nullptr) {
        if (attention->rotary.share != 0.5) return false;
        know(Attention{.heads = attention->heads,
                       .kv_heads = attention->kv_heads,
                       .head_dim = model.hidden / attention->heads,
                       .rotary = attention->rotary},
             "self_attn");
    }
    return std::all_of(model.blocks.begin(), model.blocks.end(),
                       [&](Block const& block) { return std::find(known.begin(), known.end(), block) != known.end(); });
}

/// The family of a model with latent attention: DeepSeek-V3 if the first blocks have MLPs and all others its experts.
PENTAD_INLINE std::optional<Family> latent_family(Model const& model) {
    auto const& mixer = *model.find<LatentAttention>(0);
    if (!(mixer.sight == Sight{}) || mixer.rotary.share != 1 || mixer.norm_epsilon != LatentAttention().norm_epsilon)
        return std::nullopt;
    Branch const attention{mixer, "self_attn", "input_layernorm"};
    auto const* const experts = model.first<Experts>();
    auto const* const mlp = model.first<GatedMlp>();
    auto const is = [&](Part const& part, std::string const& name) {
        return [block = Block{{attention, {part, name, "post_attention_layernorm"}}}](Block const& b) {
            return b == block;
        };
    };
    auto first_sparse = model.blocks.begin();
    if (mlp != nullptr) first_sparse = std::find_if_not(first_sparse, model.blocks.end(), is(*mlp, "mlp"));
    if (first_sparse == model.blocks.end()) return Family::deepseek_v3;
    if (experts == nullptr) return std::nullopt;
    auto const& router = experts->router;
    if (router.score != RouterScore::sigmoid || router.choice != RouterChoice::top_k || !router.has_bias ||
        experts->shared == 0)
        return std::nullopt;
    if (!std::all_of(first_sparse, model.blocks.end(), is(*experts, "block_sparse_moe"))) return std::nullopt;
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
    auto const* const recurrent = model.first<Mamba2>();
    if (recurrent != nullptr) {
        if (recurrent->norm_groups != recurrent->groups || recurrent->inner() % model.hidden != 0) return std::nullopt;
        // transformers' Mamba-2 is the one whose embedding knows of no padding.
        if (detail::is_mamba2(model)) return model.padding_token ? std::nullopt : std::optional(Family::mamba2);
    }
    if (detail::is_bamba(model)) return Family::bamba;
    if (recurrent != nullptr) return std::nullopt;
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
        if (expected.rotary.share != 1 || expected.rotary.is_interleaved) return std::nullopt;
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
    bool const is_mixed = windows > 0 && windows < model.blocks.size();
    if (first->norms_queries_and_keys)
        return !experts ? std::optional(Family::qwen3) : is_mixed ? std::nullopt : std::optional(Family::qwen3_moe);
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
