// The feed-forward block, gated (SwiGLU) or not: floating-point operations, weights and
// what is kept for the backward pass. One rank's part; with BlockRanks{} the whole. What it sends over tp is
// tensor_parallel_bytes (volume.hpp); over cp and dp it sends nothing but gradients of weights (memory.hpp).
#pragma once

#include <formulas/volume.hpp>

#include <cstdint>

namespace pentad::planner {

struct FeedForwardSizes {
    std::int64_t batch = 1; ///< sequences of a micro-batch, over all of dp
    std::int64_t seq = 1;
    std::int64_t hidden = 1;
    std::int64_t ffn = 1;
    bool gated = true; ///< SwiGLU: (silu(x gate) * (x up)) down; else act(x up) down
    [[nodiscard]] constexpr std::int64_t maps() const { return gated ? 3 : 2; }
};

/// What a rank holds of FeedForwardSizes. @throws std::invalid_argument naming what does not divide.
struct FeedForwardShare {
    double tokens, width;
    constexpr FeedForwardShare(FeedForwardSizes const& of, BlockRanks const& on)
        : tokens(static_cast<double>(per_rank("batch", of.batch, "dp", on.dp) * per_rank("seq", of.seq, "cp", on.cp))),
          width(static_cast<double>(per_rank("ffn", of.ffn, "tp", on.tp))) {}
};

struct FeedForwardFlops {
    double products = 0;    ///< 2mnk each
    double elementwise = 0; ///< silu (negate, exponential, sum, quotient) and the product with up
    [[nodiscard]] constexpr double total() const { return products + elementwise; }
};

/// The forward pass. Amer, Karim et al., section 5.2 (gated). Without a gate an activation counts four.
constexpr FeedForwardFlops feed_forward_flops(FeedForwardSizes const& of, BlockRanks const& on = {}) {
    FeedForwardShare const own(of, on);
    return {.products = 2 * static_cast<double>(of.maps() * of.hidden) * own.tokens * own.width,
            .elementwise = (of.gated ? 5 : 4) * own.tokens * own.width};
}

/// The products of the backward pass: to the input and to the weights.
constexpr double feed_forward_backward_products(FeedForwardSizes const& of, BlockRanks const& on = {}) {
    return 2 * feed_forward_flops(of, on).products;
}

/// Elements of a rank's weights.
constexpr double feed_forward_weights(FeedForwardSizes const& of, BlockRanks const& on = {}) {
    return static_cast<double>(of.maps() * of.hidden) * FeedForwardShare(of, on).width;
}

/// Elements that a rank keeps for the backward pass: the input, gate and up, and their product, which is the input of
/// down; a tape that records silu as an operation of its own keeps its output too.
constexpr double feed_forward_activations(FeedForwardSizes const& of, BlockRanks const& on = {},
                                          bool fused_activation = true) {
    FeedForwardShare const own(of, on);
    bool const sharded_input = on.sequence_parallel && !on.keeps_gathered_input;
    double const wide = of.gated ? (fused_activation ? 3 : 4) : 2;
    return own.tokens *
           (static_cast<double>(of.hidden) / (sharded_input ? static_cast<double>(on.tp) : 1.0) + wide * own.width);
}

} // namespace pentad::planner
