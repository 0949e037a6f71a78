// Published models by name, each with the source of its sizes.
#pragma once

#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace pentad::model {

/// A model and what it is called.
struct Preset {
    std::string name;
    Model model;
};

/// The model with so many blocks of a mixer and, where there is one, another part: of block i the one at place i, or
/// the last.
Model with_blocks(Model model, std::size_t layers, Part const& mixer, std::vector<Part> const& others);

/// GPT-2 and its like (Radford et al. 2019): LayerNorm, biases everywhere, learned positions, GELU, tied embeddings.
Model gpt2(std::size_t layers, std::size_t hidden, std::size_t heads, std::size_t ffn, std::size_t vocab,
           std::size_t positions);

/// Mamba-2, with the names of published checkpoints: no other branches.
Model mamba2(std::size_t layers, std::size_t hidden, std::size_t vocab, Mamba2 const& mixer, bool ties_embeddings);

/// DeepSeek-V2 and V3: latent attention, the first blocks dense, the others with experts.
Model deepseek(std::size_t layers, std::size_t hidden, std::size_t vocab, LatentAttention const& attention,
               std::size_t dense, std::size_t ffn, Experts const& experts);

/// The models that find_preset() knows.
std::vector<Preset> const& presets();

} // namespace pentad::model

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/model/impl/presets.hpp>
#endif
