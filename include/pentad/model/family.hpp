// Families of published checkpoints: which of them a model is one of, and what its parameters are called there.
#pragma once

#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace pentad::model {

/// As Hugging Face's transformers names them. Mistral is LLaMA with a sliding window, or without one LLaMA by another
/// name.
enum class Family { llama, mistral, mixtral, qwen2, qwen3, qwen3_moe };
inline constexpr std::array<std::string_view, 6> family_names{"llama", "mistral", "mixtral",
                                                              "qwen2", "qwen3",   "qwen3_moe"};
inline constexpr std::array<std::string_view, 6> architecture_names{"LlamaForCausalLM",   "MistralForCausalLM",
                                                                    "MixtralForCausalLM", "Qwen2ForCausalLM",
                                                                    "Qwen3ForCausalLM",   "Qwen3MoeForCausalLM"};
constexpr std::string_view name(Family family) { return family_names[static_cast<std::size_t>(family)]; }
constexpr std::string_view architecture(Family family) { return architecture_names[static_cast<std::size_t>(family)]; }
constexpr bool has_experts(Family family) { return family == Family::mixtral || family == Family::qwen3_moe; }

/// The family whose checkpoints a model can be written as; none where published ones have no such model. Which parts a
/// block has decides, not their sizes.
inline std::optional<Family> family_of(Model const& model) {
    if (model.blocks.empty()) return std::nullopt;
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
    bool const renormalises = !experts || experts->as<Experts>()->renormalises;
    if (first->has_bias) return first->norms_queries_and_keys || experts ? std::nullopt : std::optional(Family::qwen2);
    if (first->norms_queries_and_keys) return experts ? Family::qwen3_moe : Family::qwen3;
    bool const is_mixed = windows > 0 && windows < model.blocks.size();
    if (is_mixed || (experts && (mlp || !renormalises))) return std::nullopt;
    return experts ? Family::mixtral : windows > 0 ? Family::mistral : Family::llama;
}

/// The name of a parameter in the checkpoints of a family. The library's own names are those of LLaMA and Mixtral.
inline std::string published_name(std::optional<Family> family, std::string name) {
    if (family != Family::qwen3_moe) return name;
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> parts{
        {{".block_sparse_moe.", ".mlp."}, {".w1.", ".gate_proj."}, {".w2.", ".down_proj."}, {".w3.", ".up_proj."}}};
    if (name.find(parts[0].first) == std::string::npos) return name;
    for (auto const& [own, published] : parts)
        if (auto const at = name.find(own); at != std::string::npos) name.replace(at, own.size(), published);
    return name;
}

} // namespace pentad::model
