// The parts of blocks that the library has layers for, as plain numbers.
#pragma once

#include <pentad/model/rotary.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace pentad::model {

/// Causal grouped-query self-attention with rotary embedding (Ainslie et al. 2023; Su et al. 2021). Queries and keys
/// may be normalised head by head before they are turned (RMSNorm with one weight for all heads, as in Qwen3).
struct Attention {
    static constexpr std::string_view kind = "attention";
    std::size_t heads = 4;
    std::size_t kv_heads = 4; ///< a divisor of heads
    std::size_t head_dim = 32;
    Rotary rotary{};
    bool has_bias = false; ///< of queries, keys and values, as in Qwen2
    bool norms_queries_and_keys = false;

    friend bool operator==(Attention const&, Attention const&) = default;
    [[nodiscard]] std::string text() const {
        return std::to_string(heads) + " heads, " + std::to_string(kv_heads) + " of keys and values, of " +
               std::to_string(head_dim) + (has_bias ? ", biases" : "") +
               (norms_queries_and_keys ? ", norms of queries and keys" : "");
    }
};

/// A gated MLP (SwiGLU; Shazeer 2020, eq. 6).
struct GatedMlp {
    static constexpr std::string_view kind = "gated MLP";
    std::size_t width = 384;

    friend bool operator==(GatedMlp const&, GatedMlp const&) = default;
    [[nodiscard]] std::string text() const { return "width " + std::to_string(width); }
};

/// An MLP of two products with a GELU between them.
struct PlainMlp {
    static constexpr std::string_view kind = "plain MLP";
    std::size_t width = 384;

    friend bool operator==(PlainMlp const&, PlainMlp const&) = default;
    [[nodiscard]] std::string text() const { return "width " + std::to_string(width); }
};

/// Gated MLPs as experts behind a softmax router (Jiang et al. 2024, section 2.1).
struct Experts {
    static constexpr std::string_view kind = "experts";
    std::size_t count = 8;
    std::size_t top_k = 2;
    std::size_t width = 384;
    bool renormalises = true; ///< the weights of the top k sum to 1

    friend bool operator==(Experts const&, Experts const&) = default;
    [[nodiscard]] std::string text() const {
        return std::to_string(count) + ", " + std::to_string(top_k) + " for a token, of width " + std::to_string(width);
    }
};

} // namespace pentad::model
