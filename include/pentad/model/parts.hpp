// The parts of blocks that the library has layers for, as plain numbers.
#pragma once

#include <pentad/layout/documents.hpp>
#include <pentad/model/part_ranks.hpp>
#include <pentad/model/rotary.hpp>
#include <pentad/model/router.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::model {

/// What becomes of the scores of attention, products of queries and keys, before the softmax.
struct Scores {
    double soft_cap = 0; ///< c: s becomes c tanh(s / c) (Gemma Team 2024, "Gemma 2", section 2); 0: it stays
    /// s then loses the distance of query and key times a slope of its head (ALiBi: Press et al. 2022, section 3).
    bool alibi = false;
    /// Each head has a learned score more, of a key without a value (gpt-oss, OpenAI 2025): the parameter `sinks`.
    bool sinks = false;

    friend bool operator==(Scores const&, Scores const&) = default;
    [[nodiscard]] std::string text() const;
};

/// Grouped-query self-attention with rotary embedding (Ainslie et al. 2023; Su et al. 2021). Queries and keys
/// may be normalised head by head before they are turned (RMSNorm with one weight for all heads, as in Qwen3).
struct Attention {
    static constexpr std::string_view kind = "attention";
    std::size_t heads = 4;
    std::size_t kv_heads = 4; ///< a divisor of heads
    std::size_t head_dim = 32;
    Rotary rotary{};
    bool has_bias = false; ///< of queries, keys and values, as in Qwen2
    bool norms_queries_and_keys = false;
    bool has_output_bias = false; ///< as in GPT-2
    /// Rotary embedding; without it, positions are the model's (Model::positions), ALiBi's or none.
    bool rotates = true;
    Sight sight{}; ///< causal, and within a window as in Mistral
    Scores scores{};

    friend bool operator==(Attention const&, Attention const&) = default;
    [[nodiscard]] bool sees_later_tokens() const { return !sight.causal; }
    [[nodiscard]] bool is_on_expert_axes() const { return false; }
    [[nodiscard]] bool keeps_documents_apart() const { return true; }
    [[nodiscard]] bool is_for_grids() const { return true; }
    [[nodiscard]] std::size_t query_heads() const { return heads; }
    [[nodiscard]] std::size_t key_value_heads() const { return kv_heads == 0 ? 1 : kv_heads; }
    [[nodiscard]] std::optional<Refusal> refusal(PartRanks const& on) const;
    /// The name of the bias that is added behind the layer, or nothing.
    [[nodiscard]] std::string_view output_bias() const { return has_output_bias ? ".o_proj.bias" : ""; }
    [[nodiscard]] std::string text() const;
};

/// A gated MLP (SwiGLU; Shazeer 2020, eq. 6).
struct GatedMlp {
    static constexpr std::string_view kind = "gated MLP";
    std::size_t width = 384;

    friend bool operator==(GatedMlp const&, GatedMlp const&) = default;
    [[nodiscard]] bool sees_later_tokens() const { return false; }
    [[nodiscard]] bool is_on_expert_axes() const { return false; }
    [[nodiscard]] bool keeps_documents_apart() const { return true; }
    [[nodiscard]] bool is_for_grids() const { return true; }
    [[nodiscard]] std::optional<Refusal> refusal(PartRanks const& on) const {
        return indivisible_by_tensor("ffn", width, on.by.width, on);
    }
    [[nodiscard]] std::string text() const { return "width " + std::to_string(width); }
};

/// An MLP of two products with a GELU between them.
struct PlainMlp {
    static constexpr std::string_view kind = "plain MLP";
    std::size_t width = 384;
    bool has_bias = false;

    friend bool operator==(PlainMlp const&, PlainMlp const&) = default;
    [[nodiscard]] bool sees_later_tokens() const { return false; }
    [[nodiscard]] bool is_on_expert_axes() const { return false; }
    [[nodiscard]] bool keeps_documents_apart() const { return true; }
    [[nodiscard]] bool is_for_grids() const { return true; }
    [[nodiscard]] std::optional<Refusal> refusal(PartRanks const& on) const {
        return indivisible_by_tensor("ffn", width, on.by.width, on);
    }
    [[nodiscard]] std::string_view output_bias() const { return has_bias ? ".down_proj.bias" : ""; }
    [[nodiscard]] std::string text() const { return "width " + std::to_string(width); }
};

/// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1): keys and values are made from a vector
/// of kv_rank elements, queries from one of query_rank, both normalised. The queries and keys of each head have
/// head_dim elements without a position and, behind them, rope_dim elements that are turned; all heads share the turned
/// elements of the key.
struct LatentAttention {
    static constexpr std::string_view kind = "latent attention";
    std::size_t heads = 4;
    std::size_t head_dim = 32, rope_dim = 16, value_dim = 32;
    std::size_t query_rank = 0; ///< 0: queries are made from the stream
    std::size_t kv_rank = 64;
    double norm_epsilon = 1e-6;            ///< of these two norms, whatever the model's other norms have
    Rotary rotary{.is_interleaved = true}; ///< as in DeepSeek's checkpoints
    Sight sight{};                         ///< causal, and within a window

    /// The width of a query or key.
    [[nodiscard]] std::size_t width() const { return head_dim + rope_dim; }
    /// What products of queries and keys are multiplied with.
    [[nodiscard]] double score_scale() const;

    friend bool operator==(LatentAttention const&, LatentAttention const&) = default;
    [[nodiscard]] bool sees_later_tokens() const { return !sight.causal; }
    [[nodiscard]] bool is_on_expert_axes() const { return false; }
    [[nodiscard]] bool keeps_documents_apart() const { return true; }
    [[nodiscard]] std::optional<Refusal> refusal(PartRanks const& on) const {
        return indivisible_by_tensor("heads", heads, on.by.heads, on);
    }
    [[nodiscard]] std::string text() const;
};

/// Mamba-2 (Dao and Gu 2024, section 7): heads of head_dim elements with a state of state x head_dim each; groups of
/// heads share B and C. The gated norm is over all heads, or over groups of its own.
struct Mamba2 {
    static constexpr std::string_view kind = "Mamba-2";
    std::size_t heads = 4, head_dim = 64, state = 128;
    std::size_t groups = 1;
    std::size_t norm_groups = 1;
    std::size_t convolution = 4; ///< tokens that the causal convolution sees
    std::size_t chunk = 256;     ///< tokens that are scanned at once: it changes no numbers but for rounding
    double least_step = 0, most_step = std::numeric_limits<double>::infinity(); ///< limits of steps of time

    [[nodiscard]] std::size_t inner() const { return heads * head_dim; }
    [[nodiscard]] std::optional<Refusal> refusal(PartRanks const& on) const;

    friend bool operator==(Mamba2 const&, Mamba2 const&) = default;
    [[nodiscard]] bool sees_later_tokens() const { return false; }
    [[nodiscard]] bool is_on_expert_axes() const { return false; }
    [[nodiscard]] bool keeps_documents_apart() const { return true; }
    [[nodiscard]] std::string text() const {
        return std::to_string(heads) + " heads of " + std::to_string(head_dim) + ", state of " + std::to_string(state) +
               (groups > 1 ? ", " + std::to_string(groups) + " groups" : "") +
               (norm_groups > 1 ? ", norm in " + std::to_string(norm_groups) + " groups" : "");
    }
};

/// How the state of a linear attention fades, by so much for each token of head h of H, counted from 1.
enum class Fading {
    none,
    slopes, ///< exp(-scale 2^(-8 h / H)): Lightning attention (Qin et al. 2024, arXiv 2401.04658), with ALiBi's slopes
    retention ///< 1 - 2^(-4 - h): RetNet (Sun et al. 2023, arXiv 2307.08621, eq. 8)
};

/// Linear attention as in MiniMax-01 (arXiv 2501.08313, section 2.2): SiLU of queries, keys and values, a state of
/// head_dim x head_dim for each head instead of a softmax, RMSNorm over all heads, and a sigmoid gate.
struct LinearAttention {
    static constexpr std::string_view kind = "linear attention";
    std::size_t heads = 4, head_dim = 32;
    Fading fading = Fading::slopes;
    double scale = 1;        ///< of slopes: MiniMax-01 has 1 - i / (n - 1) in layer i of n
    std::size_t chunk = 128; ///< tokens that are scanned at once: it changes no numbers but for rounding

    /// The logarithm of the factor by which the state of each head decays from one token to the next.
    [[nodiscard]] std::vector<double> log_decays() const;

    friend bool operator==(LinearAttention const&, LinearAttention const&) = default;
    [[nodiscard]] bool sees_later_tokens() const { return false; }
    [[nodiscard]] bool is_on_expert_axes() const { return false; }
    [[nodiscard]] bool keeps_documents_apart() const { return true; }
    [[nodiscard]] std::optional<Refusal> refusal(PartRanks const& on) const {
        return indivisible_by_tensor("heads", heads, on.by.heads, on);
    }
    [[nodiscard]] std::string text() const;
};

/// Gated MLPs as experts behind a router (Jiang et al. 2024, section 2.1; DeepSeek-V3, section 2.1.2).
struct Experts {
    static constexpr std::string_view kind = "experts";
    std::size_t count = 8;
    std::size_t top_k = 2;
    std::size_t width = 384;
    std::size_t shared = 0; ///< experts that every token meets, as one MLP of their widths together
    Router router{};

    friend bool operator==(Experts const&, Experts const&) = default;
    /// If experts choose, tokens compete, and padding does not take part (LayerSetup::real_tokens).
    [[nodiscard]] bool sees_later_tokens() const { return false; }
    [[nodiscard]] bool keeps_documents_apart() const { return true; }
    [[nodiscard]] std::optional<Refusal> refusal(PartRanks const& on) const;
    [[nodiscard]] std::string text() const {
        return std::to_string(count) + ", " + std::to_string(top_k) + " for a token, of width " +
               std::to_string(width) + (shared > 0 ? ", " + std::to_string(shared) + " shared" : "") +
               (router == Router{} ? "" : ", " + router.text());
    }
};

} // namespace pentad::model

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/model/impl/parts.hpp>
#endif
