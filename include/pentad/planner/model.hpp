// The sizes of a language model: a transformer, dense or with experts, or Mamba-2.
#pragma once

#include <pentad/planner/formulas/experts.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace pentad::planner {

enum class FeedForward { swiglu, gelu };

/// Grouped-query attention (Ainslie et al. 2023). With `kv_rank`, multi-head latent attention (DeepSeek-V2, section
/// 2.1): queries and keys have head_dim elements without and rope_dim with rotary embedding, values value_dim.
struct AttentionShape {
    std::int64_t heads = 0; ///< 0: no attention
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t query_rank = 0, kv_rank = 0, rope_dim = 0, value_dim = 0;

    [[nodiscard]] bool is_latent() const { return kv_rank > 0; }
    /// Elements of a head's query and key, and of its value and output.
    [[nodiscard]] std::int64_t key_width() const { return head_dim + rope_dim; }
    [[nodiscard]] std::int64_t value_width() const { return is_latent() ? value_dim : head_dim; }
};

/// Experts behind a softmax or sigmoid router, each a feed-forward block of width `ffn`.
struct ExpertShape {
    std::int64_t count = 0; ///< 0: dense
    std::int64_t top_k = 0;
    std::int64_t ffn = 0;
    std::int64_t shared = 0; ///< experts that every token goes to
    std::int64_t every = 1;  ///< layers first + every - 1, first + 2 every - 1, ... have experts
    std::int64_t first = 0;  ///< as many layers are dense before
    bool has_bias = false;   ///< the router adds one to each expert to balance their loads (DeepSeek-V3, section 2.1.2)
    double imbalance = 1;    ///< rows of the fullest rank over the mean
    std::optional<SentRows> sent = std::nullopt; ///< by a rank for each of its tokens; none: as sent_rows() has it
};

/// Mamba-2 (Dao and Gu 2024, section 7): `heads` heads of `head_dim`, a state of `state` for each group.
struct MambaShape {
    std::int64_t heads = 0; ///< 0: none
    std::int64_t head_dim = 0;
    std::int64_t state = 0;
    std::int64_t groups = 1;
    std::int64_t convolution = 4;
    std::int64_t chunk = 256;

    [[nodiscard]] std::int64_t inner() const { return heads * head_dim; }
};

/// A model: every layer mixes tokens by attention or by a state space, then has a feed-forward block, experts or none.
struct Model {
    std::string name = {};
    std::int64_t layers = 0;
    std::int64_t hidden = 0;
    std::int64_t vocab = 0;
    std::int64_t ffn = 0; ///< 0: no dense feed-forward block
    FeedForward feed_forward = FeedForward::swiglu;
    AttentionShape attention = {};
    ExpertShape experts = {};
    MambaShape mamba = {};
    bool ties_embeddings = false;
    bool has_biases = false;    ///< of products and norms, as in GPT-2
    std::int64_t positions = 0; ///< learned position embeddings

    [[nodiscard]] bool has_experts(std::int64_t layer) const {
        return experts.count > 0 && layer >= experts.first && (layer - experts.first + 1) % experts.every == 0;
    }
};

} // namespace pentad::planner
