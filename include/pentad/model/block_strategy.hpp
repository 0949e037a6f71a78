// How the ranks of a stage share a block out.
#pragma once

#include <pentad/layout/partition.hpp>
#include <pentad/model/attention_output.hpp>
#include <pentad/model/context_choice.hpp>
#include <pentad/model/tensor_grid.hpp>

#include <cstdint>

namespace pentad::model {

/// How a block lies on the ranks of cp and tp, and how its tokens travel.
struct BlockStrategy {
    TensorKind tensor_kind = TensorKind::one_d; ///< what tp is
    bool sequence_parallel = false;             ///< the residual stream is sharded along the sequence over tp
    ContextStrategy context = ContextStrategy::ring;
    std::int64_t inner_cp = 1; ///< extent of inner(cp), for a strategy of two levels
    bool zigzag = false; ///< each rank of cp has an early and a late piece of the sequence: causal attention is even
    AttentionOutput attention_output = AttentionOutput::reduce_scatter;
    /// The largest number of parts in which rows travel to experts on other nodes, each beside the products of another.
    /// A layer by itself also takes 0: nothing is computed meanwhile.
    std::int64_t row_parts = 8;

    friend auto operator<=>(BlockStrategy const&, BlockStrategy const&) = default;
    friend bool operator==(BlockStrategy const&, BlockStrategy const&) = default;

    /// The order of a sequence over cp.
    [[nodiscard]] Order order() const { return zigzag ? Order::zigzag : Order::contiguous; }
    [[nodiscard]] ContextSplit context_split() const { return {context, inner_cp}; }
    /// Attention goes over cp in this way.
    void use(ContextSplit const& split) {
        context = split.strategy;
        inner_cp = split.inner;
    }
};

} // namespace pentad::model
