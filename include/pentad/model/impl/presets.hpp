// The functions of <pentad/model/presets.hpp>.
#pragma once

#include <pentad/model/presets.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/model/decoder.hpp>

#include <algorithm>

namespace pentad::model {

PENTAD_INLINE Model with_blocks(Model model, std::size_t layers, Part const& mixer, std::vector<Part> const& others) {
    for (std::size_t i = 0; i < layers; ++i) {
        auto& branches = model.blocks.emplace_back().branches;
        branches.push_back({mixer, "mixer", "mixer_norm"});
        if (!others.empty()) branches.push_back({others[std::min(i, others.size() - 1)], "mlp", "mlp_norm"});
    }
    return model;
}

PENTAD_INLINE Model gpt2(std::size_t layers, std::size_t hidden, std::size_t heads, std::size_t ffn, std::size_t vocab,
                         std::size_t positions) {
    Attention const attention{.heads = heads,
                              .kv_heads = heads,
                              .head_dim = hidden / heads,
                              .has_bias = true,
                              .has_output_bias = true,
                              .rotates = false};
    std::vector<Part> const mlps(1, PlainMlp{.width = ffn, .has_bias = true});
    return with_blocks(
        {.hidden = hidden, .vocab = vocab, .ties_embeddings = true, .norm = NormKind::layer, .positions = positions},
        layers, attention, mlps);
}

PENTAD_INLINE Model mamba2(std::size_t layers, std::size_t hidden, std::size_t vocab, Mamba2 const& mixer,
                           bool ties_embeddings) {
    Model model{.hidden = hidden, .vocab = vocab, .ties_embeddings = ties_embeddings};
    model.blocks.assign(layers, Block{{{mixer, "mixer", "norm"}}});
    return model;
}

PENTAD_INLINE Model deepseek(std::size_t layers, std::size_t hidden, std::size_t vocab,
                             LatentAttention const& attention, std::size_t dense, std::size_t ffn,
                             Experts const& experts) {
    Branch const mixer{attention, "self_attn", "input_layernorm"};
    Model model{.hidden = hidden, .vocab = vocab};
    for (std::size_t i = 0; i < layers; ++i)
        model.blocks.push_back({{mixer, i < dense ? Branch{GatedMlp{ffn}, "mlp", "post_attention_layernorm"}
                                                  : Branch{experts, "block_sparse_moe", "post_attention_layernorm"}}});
    return model;
}

PENTAD_INLINE std::vector<Preset> const& presets() {
    static std::vector<Preset> const list{
        // Touvron et al. 2023, "Llama 2", section 2.2, and meta-llama/Llama-2-7b-hf, config.json.
        {"llama-2-7b",
         decoder({.layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 32, .ffn = 11008, .vocab = 32000})},
        // meta-llama/Llama-3.2-1B, config.json.
        {"llama-1b", decoder({.layers = 16,
                              .hidden = 2048,
                              .heads = 32,
                              .kv_heads = 8,
                              .ffn = 8192,
                              .vocab = 128256,
                              .ties_embeddings = true,
                              .rope_theta = 5e5})},
        // Grattafiori et al. 2024, "The Llama 3 Herd of Models", table 3; its vocabulary of 128K is 128256
        // (meta-llama/Llama-3.1-405B, config.json).
        {"llama-3-8b", decoder({.layers = 32,
                                .hidden = 4096,
                                .heads = 32,
                                .kv_heads = 8,
                                .ffn = 14336,
                                .vocab = 128256,
                                .rope_theta = 5e5})},
        {"llama-3-70b", decoder({.layers = 80,
                                 .hidden = 8192,
                                 .heads = 64,
                                 .kv_heads = 8,
                                 .ffn = 28672,
                                 .vocab = 128256,
                                 .rope_theta = 5e5})},
        {"llama-3-405b", decoder({.layers = 126,
                                  .hidden = 16384,
                                  .heads = 128,
                                  .kv_heads = 8,
                                  .ffn = 53248,
                                  .vocab = 128256,
                                  .rope_theta = 5e5})},
        // Jiang et al. 2024, "Mixtral of Experts", table 1.
        {"mixtral-8x7b", decoder({.layers = 32,
                                  .hidden = 4096,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .ffn = 14336,
                                  .vocab = 32000,
                                  .experts = 8,
                                  .rope_theta = 1e6})},
        // mistral-community/Mixtral-8x22B-v0.1, config.json.
        {"mixtral-8x22b", decoder({.layers = 56,
                                   .hidden = 6144,
                                   .heads = 48,
                                   .kv_heads = 8,
                                   .ffn = 16384,
                                   .vocab = 32000,
                                   .experts = 8,
                                   .rope_theta = 1e6})},
        // DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 4.2, and deepseek-ai/DeepSeek-V3, config.json. The
        // main model: the module that predicts a second token (section 2.2; 11.5e9 parameters more) is left out.
        {"deepseek-v3",
         deepseek(61, 7168, 129280,
                  {.heads = 128, .head_dim = 128, .rope_dim = 64, .value_dim = 128, .query_rank = 1536, .kv_rank = 512},
                  3, 18432, {.count = 256, .top_k = 8, .width = 2048, .shared = 1, .router = deepseek_v3_router})},
        // Brown et al. 2020, "Language Models are Few-Shot Learners", table 2.1. Its sparse attention layers, which
        // have the same parameters, count as dense ones.
        {"gpt-3-175b", gpt2(96, 12288, 96, 4 * 12288, 50257, 2048)},
        // Dao and Gu 2024, "Transformers are SSMs"; state-spaces/mamba2-1.3b and mamba2-2.7b, config.json, whose
        // vocabulary of 50277 is padded to a multiple of 16.
        {"mamba2-1.3b", mamba2(48, 2048, 50288, {.heads = 64}, true)},
        {"mamba2-2.7b", mamba2(64, 2560, 50288, {.heads = 80}, true)},
        // mistralai/Mamba-Codestral-7B-v0.1, config.json.
        {"mamba2-7b", mamba2(64, 4096, 32768, {.heads = 128, .groups = 8, .norm_groups = 8}, false)},
    };
    return list;
}

} // namespace pentad::model
