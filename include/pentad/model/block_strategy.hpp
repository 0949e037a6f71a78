// How the ranks of a stage share a block out.
#pragma once

#include <pentad/layout/partition.hpp>
#include <pentad/model/attention_output.hpp>
#include <pentad/model/context_choice.hpp>
#include <pentad/model/tensor_grid.hpp>

#include <compare>
#include <cstdint>
#include <optional>

namespace pentad::model {

/// The ranks of a stage as dp x cp x tp, of which dp has what the others leave; those along tp are neighbours.
struct BlockMesh {
    std::int64_t cp = 1, tp = 1;

    friend auto operator<=>(BlockMesh const&, BlockMesh const&) = default;
    friend bool operator==(BlockMesh const&, BlockMesh const&) = default;
};

/// How a block lies on the ranks of a stage, and how its tokens travel.
struct BlockStrategy {
    std::optional<BlockMesh> mesh = {};         ///< as the block sees these ranks; none: as the rest of the model
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
