// The parts of blocks that the library has layers for, as plain numbers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pentad::model {

/// Causal grouped-query self-attention with rotary embedding (Ainslie et al. 2023; Su et al. 2021).
struct Attention {
    static constexpr std::string_view kind = "attention";
    std::size_t heads = 4;
    std::size_t kv_heads = 4; ///< a divisor of heads
    std::size_t head_dim = 32;
    double rope_theta = 1e4;

    friend bool operator==(Attention const&, Attention const&) = default;
    [[nodiscard]] std::string text() const {
        return std::to_string(heads) + " heads, " + std::to_string(kv_heads) + " of keys and values, of " +
               std::to_string(head_dim);
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

/// Gated MLPs as experts behind a softmax router that renormalises its top k (Jiang et al. 2024, section 2.1).
struct Experts {
    static constexpr std::string_view kind = "experts";
    std::size_t count = 8;
    std::size_t top_k = 2;
    std::size_t width = 384;

    friend bool operator==(Experts const&, Experts const&) = default;
    [[nodiscard]] std::string text() const {
        return std::to_string(count) + ", " + std::to_string(top_k) + " for a token, of width " + std::to_string(width);
    }
};

} // namespace pentad::model
