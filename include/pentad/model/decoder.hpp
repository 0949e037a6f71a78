// Decoder-only transformers with the names of published checkpoints: LLaMA where blocks are dense, Mixtral where they
// have experts.
#pragma once

#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace pentad::model {

/// The sizes of a decoder whose blocks are alike, but for experts in every n-th.
struct DecoderSizes {
    std::size_t layers = 4;
    std::size_t hidden = 128;
    std::size_t heads = 4;
    std::size_t kv_heads = 4;
    std::size_t head_dim = 0; ///< 0: hidden / heads
    std::size_t ffn = 384;    ///< width of an MLP, or of an expert
    std::size_t vocab = 256;
    std::size_t experts = 0; ///< 0: dense
    std::size_t top_k = 2;
    std::size_t moe_every = 1; ///< blocks moe_every - 1, 2 moe_every - 1, ... have experts
    bool ties_embeddings = false;
    double norm_epsilon = 1e-5;
    double rope_theta = 1e4;

    [[nodiscard]] bool has_experts(std::size_t layer) const { return experts > 0 && (layer + 1) % moe_every == 0; }
};

/// @throws std::invalid_argument where no head_dim is given and heads do not divide hidden, or moe_every is 0
inline Model decoder(DecoderSizes const& sizes) {
    auto const refuse = [](std::string const& why) { throw std::invalid_argument("a decoder " + why); };
    if (sizes.heads == 0 || (sizes.head_dim == 0 && sizes.hidden % sizes.heads != 0))
        refuse("of width " + std::to_string(sizes.hidden) + " cannot have " + std::to_string(sizes.heads) +
               " heads: give a divisor, or head_dim");
    if (sizes.experts > 0 && sizes.moe_every == 0) refuse("has experts in every n-th block, where n is at least 1");
    Model model{.hidden = sizes.hidden,
                .vocab = sizes.vocab,
                .ties_embeddings = sizes.ties_embeddings,
                .norm_epsilon = sizes.norm_epsilon};
    Branch const attention{Attention{.heads = sizes.heads,
                                     .kv_heads = sizes.kv_heads,
                                     .head_dim = sizes.head_dim > 0 ? sizes.head_dim : sizes.hidden / sizes.heads,
                                     .rotary = {.theta = sizes.rope_theta}},
                           "self_attn", "input_layernorm"};
    Branch const mlp{GatedMlp{sizes.ffn}, "mlp", "post_attention_layernorm"};
    Branch const experts{Experts{.count = sizes.experts, .top_k = sizes.top_k, .width = sizes.ffn}, "block_sparse_moe",
                         "post_attention_layernorm"};
    for (std::size_t layer = 0; layer < sizes.layers; ++layer)
        model.blocks.push_back({{attention, sizes.has_experts(layer) ? experts : mlp}});
    return model;
}

} // namespace pentad::model
