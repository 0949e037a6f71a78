// The steps of a plan: what each does along which axes, and to the shape of a shard.
#pragma once

#include <pentad/layout/block.hpp>
#include <pentad/layout/layout.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pentad {

/// One step of a plan. Each acts on the groups along `PlanStep::axes`.
enum class StepKind : std::uint8_t {
    all_gather,     ///< shard -> replicated or invariant
    reduce_scatter, ///< partial -> shard
    all_reduce,     ///< partial -> replicated or invariant
    all_to_all,     ///< shard of one dimension -> shard of another
    exchange,       ///< several of these at once, each element straight to where it belongs: PlanValue::exchange
    slice,          ///< replicated or invariant -> shard: nothing is sent
    keep_first,     ///< replicated or invariant -> partial: the first rank keeps the value, the others hold zeros
    zero_pad,       ///< shard -> partial: the shard in its place, zeros elsewhere
    relabel,        ///< invariant <-> replicated: nothing happens to the value
    fill_halo,      ///< ghost cells become copies of the neighbours' cells
    add_halo,       ///< summands in ghost cells are added to the neighbours' cells
    make_halo,      ///< room for ghost cells, zeros: nothing is sent
    drop_halo,      ///< without ghost cells: nothing is sent
    clear_halo,     ///< ghost cells become zeros: nothing is sent
};

inline constexpr std::array<std::string_view, 14> step_names{
    "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "exchange",  "slice",     "keep_first",
    "zero_pad",   "relabel",        "fill_halo",  "add_halo",   "make_halo", "drop_halo", "clear_halo"};

constexpr bool is_halo(StepKind kind) { return kind >= StepKind::fill_halo; }
/// Whether a rank does it alone.
constexpr bool is_local(StepKind kind) {
    switch (kind) {
    case StepKind::slice:
    case StepKind::keep_first:
    case StepKind::zero_pad:
    case StepKind::relabel:
    case StepKind::make_halo:
    case StepKind::drop_halo:
    case StepKind::clear_halo:
        return true;
    default:
        return false;
    }
}

/// The ghost cells that a step is about.
struct HaloValue {
    std::array<std::uint32_t, max_dimensions> width{}; ///< on each side; 0: not of this dimension
    std::array<Boundary, max_dimensions> boundary{};
};

struct PlanStep {
    StepKind kind{};
    AxisNames axes{};                         ///< major to minor
    std::size_t dimension = 0;                ///< the dimension that is gathered, scattered or sliced
    std::size_t from_dimension = 0;           ///< all_to_all: the dimension that is no longer sharded
    Placement reduction = Placement::partial; ///< all_reduce: sum, maximum, minimum or log-sum-exp
    HaloValue halo{};                         ///< of a halo: its axes are those of its dimensions, one after the other
};

/// What an exchange does along its axes. Each element goes from every rank that holds it before to every rank that
/// holds it after, but along some axes only to ranks of the same coordinate.
struct ExchangeValue {
    std::array<AxisNames, max_dimensions> before{}, after{}; ///< axes that cut each dimension, major to minor
    AxisNames same;   ///< axes along which senders and receivers have the same coordinate
    AxisNames summed; ///< axes along which each rank holds a summand before, and a shard of the sum after
};

/// An all-gather, reduce-scatter or all-to-all as an exchange: how it is carried out where blocks are uneven.
constexpr ExchangeValue exchange_of(PlanStep const& step) {
    ExchangeValue exchange;
    if (step.kind == StepKind::all_gather) exchange.before[step.dimension] = step.axes;
    if (step.kind == StepKind::all_to_all) exchange.before[step.from_dimension] = step.axes;
    if (step.kind == StepKind::all_to_all || step.kind == StepKind::reduce_scatter)
        exchange.after[step.dimension] = step.axes;
    if (step.kind == StepKind::reduce_scatter) exchange.summed = step.axes;
    return exchange;
}
/// Whether blocks that a step moves differ.
constexpr bool is_uneven(PlanStep const& step, ShardShape const& shape, std::size_t n) {
    switch (step.kind) {
    case StepKind::all_gather:
        return shape.is_uneven(step.dimension, n, false);
    case StepKind::reduce_scatter:
        return shape.is_uneven(step.dimension, n, true);
    case StepKind::all_to_all:
        return shape.is_uneven(step.dimension, n, true) || shape.is_uneven(step.from_dimension, n, false);
    default:
        return false;
    }
}
/// Changes a shard's shape as a step does on rank `index` of `n`; an exchange: ExchangeShape.
constexpr void reshape(ShardShape& shape, PlanStep const& step, std::size_t n, std::size_t index) {
    switch (step.kind) {
    case StepKind::all_gather:
    case StepKind::zero_pad:
        return shape.join(step.dimension, n);
    case StepKind::reduce_scatter:
    case StepKind::slice:
        return shape.cut(step.dimension, n, index);
    case StepKind::all_to_all:
        shape.cut(step.dimension, n, index);
        return shape.join(step.from_dimension, n);
    case StepKind::make_halo:
    case StepKind::drop_halo:
        for (std::size_t d = 0; d < shape.rank; ++d) {
            std::size_t const width = step.halo.width[d];
            if (width == 0) continue;
            shape.ghosts[d] = step.kind == StepKind::make_halo ? width : 0;
            shape.local[d] = shape.blocks[d].size() + 2 * shape.ghosts[d];
        }
        return;
    default:
        return;
    }
}

} // namespace pentad
