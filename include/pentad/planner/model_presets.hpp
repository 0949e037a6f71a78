// Published models by name, each with the source of its sizes.
#pragma once

#include <pentad/planner/model.hpp>
#include <pentad/planner/names.hpp>

#include <string_view>
#include <vector>

namespace pentad::planner {

/// The models that find_model() knows.
inline std::vector<Model> const& models() {
    static std::vector<Model> const list{
        // Touvron et al. 2023, "Llama 2", section 2.2, and meta-llama/Llama-2-7b-hf, config.json.
        {.name = "llama-2-7b",
         .layers = 32,
         .hidden = 4096,
         .vocab = 32000,
         .ffn = 11008,
         .attention = {.heads = 32, .kv_heads = 32, .head_dim = 128}},
        // meta-llama/Llama-3.2-1B, config.json.
        {.name = "llama-1b",
         .layers = 16,
         .hidden = 2048,
         .vocab = 128256,
         .ffn = 8192,
         .attention = {.heads = 32, .kv_heads = 8, .head_dim = 64},
         .ties_embeddings = true},
        // Grattafiori et al. 2024, "The Llama 3 Herd of Models", table 3; its vocabulary of 128K is 128256
        // (meta-llama/Llama-3.1-405B, config.json).
        {.name = "llama-3-8b",
         .layers = 32,
         .hidden = 4096,
         .vocab = 128256,
         .ffn = 14336,
         .attention = {.heads = 32, .kv_heads = 8, .head_dim = 128}},
        {.name = "llama-3-70b",
         .layers = 80,
         .hidden = 8192,
         .vocab = 128256,
         .ffn = 28672,
         .attention = {.heads = 64, .kv_heads = 8, .head_dim = 128}},
        {.name = "llama-3-405b",
         .layers = 126,
         .hidden = 16384,
         .vocab = 128256,
         .ffn = 53248,
         .attention = {.heads = 128, .kv_heads = 8, .head_dim = 128}},
        // Jiang et al. 2024, "Mixtral of Experts", table 1.
        {.name = "mixtral-8x7b",
         .layers = 32,
         .hidden = 4096,
         .vocab = 32000,
         .attention = {.heads = 32, .kv_heads = 8, .head_dim = 128},
         .experts = {.count = 8, .top_k = 2, .ffn = 14336}},
        // mistral-community/Mixtral-8x22B-v0.1, config.json.
        {.name = "mixtral-8x22b",
         .layers = 56,
         .hidden = 6144,
         .vocab = 32000,
         .attention = {.heads = 48, .kv_heads = 8, .head_dim = 128},
         .experts = {.count = 8, .top_k = 2, .ffn = 16384}},
        // DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 4.2, and deepseek-ai/DeepSeek-V3, config.json. The
        // main model: the module that predicts a second token (section 2.2; 11.5e9 parameters more) is left out.
        {.name = "deepseek-v3",
         .layers = 61,
         .hidden = 7168,
         .vocab = 129280,
         .ffn = 18432,
         .attention = {.heads = 128,
                       .kv_heads = 128,
                       .head_dim = 128,
                       .query_rank = 1536,
                       .kv_rank = 512,
                       .rope_dim = 64,
                       .value_dim = 128},
         .experts = {.count = 256, .top_k = 8, .ffn = 2048, .shared = 1, .first = 3, .has_bias = true}},
        // Brown et al. 2020, "Language Models are Few-Shot Learners", table 2.1. Its sparse attention layers, which
        // have the same parameters, count as dense ones.
        {.name = "gpt-3-175b",
         .layers = 96,
         .hidden = 12288,
         .vocab = 50257,
         .ffn = 4 * 12288,
         .feed_forward = FeedForward::gelu,
         .attention = {.heads = 96, .kv_heads = 96, .head_dim = 128},
         .ties_embeddings = true,
         .has_biases = true,
         .positions = 2048},
        // Dao and Gu 2024, "Transformers are SSMs"; state-spaces/mamba2-1.3b and mamba2-2.7b, config.json, whose
        // vocabulary of 50277 is padded to a multiple of 16.
        {.name = "mamba2-1.3b",
         .layers = 48,
         .hidden = 2048,
         .vocab = 50288,
         .mamba = {.heads = 64, .head_dim = 64, .state = 128},
         .ties_embeddings = true},
        {.name = "mamba2-2.7b",
         .layers = 64,
         .hidden = 2560,
         .vocab = 50288,
         .mamba = {.heads = 80, .head_dim = 64, .state = 128},
         .ties_embeddings = true},
        // mistralai/Mamba-Codestral-7B-v0.1, config.json.
        {.name = "mamba2-7b",
         .layers = 64,
         .hidden = 4096,
         .vocab = 32768,
         .mamba = {.heads = 128, .head_dim = 64, .state = 128, .groups = 8}},
    };
    return list;
}

/// A model by name, such as llama-3-8b; std::invalid_argument lists the names where it is not one.
[[nodiscard]] inline Model const& find_model(std::string_view name) {
    return detail::find_preset(models(), name, "model");
}

} // namespace pentad::planner
