// Families of published checkpoints: which of them a model is one of, and what its parameters are called there.
#pragma once

#include <pentad/model/model.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pentad::model {

/// As Hugging Face's transformers names them. Mistral is LLaMA with a sliding window, or without one LLaMA by another
/// name.
enum class Family { llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, mamba2, bamba, deepseek_v3 };
inline constexpr std::array<std::string_view, 9> family_names{"llama",     "mistral", "mixtral", "qwen2",      "qwen3",
                                                              "qwen3_moe", "mamba2",  "bamba",   "deepseek_v3"};
inline constexpr std::array<std::string_view, 9> architecture_names{
    "LlamaForCausalLM",    "MistralForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM",     "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM", "Mamba2ForCausalLM",  "BambaForCausalLM",   "DeepseekV3ForCausalLM"};
constexpr std::string_view name(Family family) { return family_names[static_cast<std::size_t>(family)]; }
constexpr std::string_view architecture(Family family) { return architecture_names[static_cast<std::size_t>(family)]; }
constexpr bool has_experts(Family family) {
    return family == Family::mixtral || family == Family::qwen3_moe || family == Family::deepseek_v3;
}

/// The family whose checkpoints a model can be written as; none where published ones have no such model. Which parts a
/// block has decides, not their sizes.
std::optional<Family> family_of(Model const& model);

/// The name of a parameter in the checkpoints of a family. The library's own names are those of LLaMA and Mixtral.
std::string published_name(std::optional<Family> family, std::string name);

} // namespace pentad::model

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/model/impl/family.hpp>
#endif
