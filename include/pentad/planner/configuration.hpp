// A point of the search: the mesh, how the batch is cut, and what is sharded, kept or
// computed again.
#pragma once

#include <pentad/layout/partition.hpp>
#include <pentad/mesh/axis.hpp>
#include <pentad/planner/hardware.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pentad::planner {

/// What a backward pass computes again. Selective: attention's scores, which our fused attention always does, and the
/// activation inside the feed-forward block. Full: the whole layer, from its input.
enum class Recompute { none, selective, full };

using pentad::ContextStrategy;

/// The axes as they are usually nested, outermost first.
inline constexpr std::array<std::string_view, 5> axis_order{"dp", "pp", "ep", "cp", "tp"};

struct Configuration {
    std::int64_t dp = 1, pp = 1, ep = 1, cp = 1, tp = 1;
    /// Outermost first: the last axis joins neighbours.
    std::array<std::string_view, 5> order = axis_order;
    std::int64_t seq = 0;
    std::int64_t global_batch = 0;   ///< sequences in a step
    std::int64_t micro_batch = 1;    ///< sequences of a micro-batch on a rank
    int zero = 0;                    ///< 1: optimizer state sharded, 2: gradients too, 3: parameters too
    std::int64_t zero_ranks = 0;     ///< hybrid sharding: along dp, over as many neighbours; 0: all
    bool zero_keeps = false;         ///< 3: gathered parameters stay for the step, and are not gathered for each pass
    bool zero_accumulates = false;   ///< 2 and 3: gradients are added up whole, and reduced once
    bool releases_gradients = false; ///< weights are updated when their gradients are complete
    std::string schedule = "1f1b";
    std::int64_t chunks = 0;                ///< stages on each rank; 0: as few as the schedule is defined for
    std::int64_t bucket_elements = 1 << 22; ///< a bucket of weights is closed when it holds as many
    Recompute recompute = Recompute::none;
    bool sequence_parallel = false;
    ContextStrategy context = ContextStrategy::ring;
    bool zigzag = true; ///< each rank of cp has an early and a late piece of the sequence: causal attention is even
    Element element = Element::bf16;

    [[nodiscard]] std::int64_t devices() const { return dp * pp * ep * cp * tp; }
    [[nodiscard]] std::int64_t extent(std::string_view axis) const {
        auto const is = [axis](std::string_view name) { return is_same_axis(axis, name); };
        return is("dp") ? dp : is("pp") ? pp : is("ep") ? ep : is("cp") ? cp : tp;
    }
    [[nodiscard]] std::int64_t micro_batches() const { return global_batch / (dp * ep * micro_batch); }
    /// Whether gradients are reduced after each micro-batch.
    [[nodiscard]] bool reduces_each_micro_batch() const { return zero >= 2 && !zero_accumulates; }
    /// Whether gradients have memory only from the first addition on.
    [[nodiscard]] bool has_passing_gradients() const { return zero >= 2 || releases_gradients; }
    /// Whether no gradient is kept from one micro-batch to the next.
    [[nodiscard]] bool keeps_no_gradients() const {
        return has_passing_gradients() && !reduces_each_micro_batch() && micro_batches() == 1;
    }
    [[nodiscard]] double tokens() const { return static_cast<double>(global_batch * seq); }
};

} // namespace pentad::planner
