// Grouped-query attention, a layer of it: floating-point operations, weights, what is
// kept for the backward pass, the cache of keys and values. One rank's part; with BlockRanks{} the whole.
// What context parallelism sends is in context.hpp, what tensor parallelism sends is tensor_parallel_bytes.
#pragma once

#include <formulas/volume.hpp>

#include <cstdint>

namespace pentad::planner {

struct AttentionSizes {
    std::int64_t batch = 1; ///< sequences of a micro-batch, over all of dp
    std::int64_t seq = 1;
    std::int64_t hidden = 1;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    std::int64_t head_dim = 1;
    bool causal = true; ///< a query attends to the keys up to its own
};

/// What a rank holds of AttentionSizes. @throws std::invalid_argument naming what does not divide.
struct AttentionShare {
    std::int64_t sequences, tokens, width, kv_width, heads;
    constexpr AttentionShare(AttentionSizes const& of, BlockRanks const& on)
        : sequences(per_rank("batch", of.batch, "dp", on.dp)), tokens(sequences * per_rank("seq", of.seq, "cp", on.cp)),
          width(per_rank("heads", of.heads, "tp", on.tp) * of.head_dim),
          kv_width(per_rank_or_one("kv_heads", of.kv_heads, "tp", on.tp) * of.head_dim),
          heads(per_rank("heads", of.heads, "tp", on.tp)) {}
};

/// Floating-point operations; a product of m x k and k x n is 2mnk.
struct AttentionFlops {
    double inputs = 0;  ///< the projections to q, k and v
    double scores = 0;  ///< q k^T
    double softmax = 0; ///< elementwise
    double values = 0;  ///< softmax(.) v
    double output = 0;  ///< the projection back to the stream
    [[nodiscard]] constexpr double products() const { return inputs + scores + values + output; }
    [[nodiscard]] constexpr double total() const { return products() + softmax; }
};

/// Query-key pairs of one head in one sequence: s^2, or s(s+1)/2 where attention is causal.
constexpr double attention_pairs(std::int64_t seq, bool causal) {
    auto const s = static_cast<double>(seq);
    return causal ? s * (s + 1) / 2 : s * s;
}

/// The forward pass. Over cp it is the mean of the ranks, which zigzag gives to each (context.hpp: causal_pairs). The
/// softmax takes five for each score: maximum, difference, exponential, sum, quotient.
/// Amer, Karim et al., section 5.1, which counts all s^2 pairs.
constexpr AttentionFlops attention_flops(AttentionSizes const& of, BlockRanks const& on = {}) {
    AttentionShare const own(of, on);
    double const width = static_cast<double>(own.width);
    double const projected = 2 * static_cast<double>(own.tokens) * static_cast<double>(of.hidden);
    double const pairs =
        static_cast<double>(own.sequences) * attention_pairs(of.seq, of.causal) / static_cast<double>(on.cp);
    return {.inputs = projected * static_cast<double>(own.width + 2 * own.kv_width),
            .scores = 2 * pairs * width,
            .softmax = 5 * pairs * static_cast<double>(own.heads),
            .values = 2 * pairs * width,
            .output = projected * width};
}

/// The backward pass: each projection has two products, to its input and to its weight. Of scores and values there
/// are five where the scores are computed anew (FlashAttention: Dao et al. 2022, algorithm 4), else four; computing
/// anew, exp(s - lse), and p (dp - delta) are two elementwise operations each.
constexpr AttentionFlops attention_backward_flops(AttentionSizes const& of, BlockRanks const& on = {},
                                                  bool recomputes_scores = true) {
    auto const forward = attention_flops(of, on);
    return {.inputs = 2 * forward.inputs,
            .scores = (recomputes_scores ? 3 : 2) * forward.scores,
            .softmax = (recomputes_scores ? 4 : 2) * forward.softmax / 5,
            .values = 2 * forward.values,
            .output = 2 * forward.output};
}

/// Elements of a rank's weights: q and output d x d, k and v d x k d_h. cp and dp share no weights out; where tp
/// exceeds the kv heads, ranks share one.
constexpr double attention_weights(AttentionSizes const& of, BlockRanks const& on = {}) {
    AttentionShare const own(of, on);
    return 2 * static_cast<double>(of.hidden) * static_cast<double>(own.width + own.kv_width);
}

/// Elements that a rank keeps for the backward pass of fused attention.
struct AttentionActivations {
    double input = 0;       ///< of the projections: for their weights' gradients
    double query = 0;       ///<
    double key_value = 0;   ///< both
    double output = 0;      ///< of attention, before the projection
    double log_sum_exp = 0; ///< a number in f32 for each query and head
    [[nodiscard]] constexpr double bytes(double element_bytes) const {
        return (input + query + key_value + output) * element_bytes + log_sum_exp * 4;
    }
};

constexpr AttentionActivations attention_activations(AttentionSizes const& of, BlockRanks const& on = {}) {
    AttentionShare const own(of, on);
    auto const tokens = static_cast<double>(own.tokens);
    bool const sharded_input = on.sequence_parallel && !on.keeps_gathered_input;
    return {.input = tokens * static_cast<double>(of.hidden) / (sharded_input ? static_cast<double>(on.tp) : 1.0),
            .query = tokens * static_cast<double>(own.width),
            .key_value = 2 * tokens * static_cast<double>(own.kv_width),
            .output = tokens * static_cast<double>(own.width),
            .log_sum_exp = tokens * static_cast<double>(own.heads)};
}

/// Bytes of a rank's cache of keys and values, for `of.seq` tokens in each of `layers` layers.
constexpr double key_value_cache_bytes(AttentionSizes const& of, std::int64_t layers, double element_bytes,
                                       BlockRanks const& on = {}) {
    AttentionShare const own(of, on);
    return 2 * static_cast<double>(layers) * static_cast<double>(own.tokens) * static_cast<double>(own.kv_width) *
           element_bytes;
}

} // namespace pentad::planner
