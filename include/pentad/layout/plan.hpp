// The plan that takes a tensor from one layout to another: which collectives, over which
// axes, in which order. The backward plan is the plan between the duals: it is derived, never written.
#pragma once

#include <pentad/layout/algebra.hpp>
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
    slice,          ///< replicated or invariant -> shard: nothing is sent
    keep_first,     ///< replicated or invariant -> partial: the first rank keeps the value, the others hold zeros
    zero_pad,       ///< shard -> partial: the shard in its place, zeros elsewhere
    relabel,        ///< invariant <-> replicated: nothing happens to the value
};

inline constexpr std::array<std::string_view, 8> step_names{"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                                            "slice",      "keep_first",     "zero_pad",   "relabel"};

struct PlanStep {
    StepKind kind{};
    AxisNames axes{};                         ///< major to minor
    std::size_t dimension = 0;                ///< the dimension that is gathered, scattered or sliced
    std::size_t from_dimension = 0;           ///< all_to_all: the dimension that is no longer sharded
    Placement reduction = Placement::partial; ///< all_reduce: sum, maximum or log-sum-exp
};

/// Why two layouts have no plan.
enum class PlanError : std::uint8_t {
    none,
    elements_differ,
    dimensions_differ,
    extents_differ,
    axis_order,
    partial_reduction,
    part_of_axis,
};

/// One sentence for each PlanError: what is wrong and what to do.
inline constexpr std::array<std::string_view, 7> plan_error_texts{
    "",
    "pentad: the layouts have different elements: convert the tensor before it is redistributed",
    "pentad: the layouts have different dimensions: redistribution keeps the names and the order of the dimensions",
    "pentad: the layouts give a dimension two different extents",
    "pentad: an axis enters and leaves a dimension at its minor end only: list the axes that stay first, in the same "
    "order in both layouts",
    "pentad: a partial maximum or log-sum-exp can only be reduced, to replicated or invariant, and nothing becomes one",
    "pentad: one layout names an axis and the other a factor of it: name outer and inner in both",
};

struct PlanValue {
    PlanError error = PlanError::none;
    std::size_t count = 0;
    std::array<PlanStep, 16> steps{};

    [[nodiscard]] constexpr bool valid() const { return error == PlanError::none; }
    [[nodiscard]] constexpr auto begin() const { return steps.begin(); }
    [[nodiscard]] constexpr auto end() const { return steps.begin() + static_cast<std::ptrdiff_t>(count); }
    constexpr void push(PlanStep const& step) { steps[count++] = step; }
};

namespace detail {

constexpr void drop(AxisNames& list, std::string_view axis) {
    AxisNames kept;
    for (auto const name : list)
        if (name != axis) kept.push(name);
    list = kept;
}

constexpr void set_placement(LayoutValue& layout, std::string_view axis, Placement placement) {
    for (auto* list : {&layout.replicated, &layout.partial, &layout.partial_max, &layout.partial_log_sum_exp})
        drop(*list, axis);
    if (placement == Placement::replicated) layout.replicated.push(axis);
    if (placement == Placement::partial) layout.partial.push(axis);
}

constexpr bool same_factors(LayoutValue const& a, LayoutValue const& b) {
    LayoutValue both = a;
    for (auto const axis : b.axes())
        if (a.placement(axis) == Placement::invariant) both.replicated.push(axis);
    return !names_an_axis_twice(both);
}

constexpr bool is_value(Placement p) { return p == Placement::replicated || p == Placement::invariant; }

/// True when `now.axes` is a prefix of `target.axes` and the next axis of the target is `axis`.
constexpr bool enters_next(AxisNames const& now, AxisNames const& target, std::string_view axis) {
    if (now.size() >= target.size() || target[now.size()] != axis) return false;
    for (std::size_t i = 0; i < now.size(); ++i)
        if (now[i] != target[i]) return false;
    return true;
}

/// The step that can be taken for `axis` now, if any.
constexpr bool find_step(LayoutValue const& now, LayoutValue const& to, std::string_view axis, PlanStep& step) {
    auto const from_placement = now.placement(axis);
    auto const to_placement = to.placement(axis);
    std::size_t const d = now.dimension_of(axis), e = to.dimension_of(axis);
    step = PlanStep{};
    step.axes.push(axis);
    if (from_placement == to_placement && d == e) return false;
    if (from_placement == Placement::shard) {
        if (now.dimensions[d].axes.back() != axis) return false;
        step.dimension = d;
        if (to_placement == Placement::shard) {
            step = {StepKind::all_to_all, step.axes, e, d};
            return enters_next(now.dimensions[e].axes, to.dimensions[e].axes, axis);
        }
        step.kind = to_placement == Placement::partial ? StepKind::zero_pad : StepKind::all_gather;
        return true;
    }
    if (to_placement == Placement::shard) {
        step.kind = from_placement == Placement::partial ? StepKind::reduce_scatter : StepKind::slice;
        step.dimension = e;
        return enters_next(now.dimensions[e].axes, to.dimensions[e].axes, axis);
    }
    step.reduction = from_placement;
    step.kind = !is_value(from_placement)            ? StepKind::all_reduce
                : to_placement == Placement::partial ? StepKind::keep_first
                                                     : StepKind::relabel;
    return true;
}

constexpr void take(LayoutValue& now, LayoutValue const& to, PlanStep const& step) {
    auto const axis = step.axes[0];
    for (std::size_t d = 0; d < now.rank; ++d) drop(now.dimensions[d].axes, axis);
    auto const target = to.placement(axis);
    set_placement(now, axis, target);
    if (target == Placement::shard) now.dimensions[to.dimension_of(axis)].axes.push(axis);
}

/// Joins two steps of one kind on one dimension into one step over both axes, when that is the same collective.
constexpr bool join(PlanStep& last, PlanStep const& step) {
    if (last.kind != step.kind || last.kind == StepKind::all_to_all || last.dimension != step.dimension ||
        last.reduction != step.reduction)
        return false;
    auto const axis = step.axes[0];
    bool const outwards = last.kind == StepKind::all_gather || last.kind == StepKind::zero_pad;
    if (outwards) { // the axis that left later is the more major one
        AxisNames joined(axis);
        for (auto const name : last.axes) joined.push(name);
        last.axes = joined;
    } else
        last.axes.push(axis);
    return true;
}

} // namespace detail

/// The plan from one layout to another. Steps that shrink the tensor come first and gathers last.
constexpr PlanValue make_plan(LayoutValue const& from, LayoutValue const& to) {
    PlanValue plan;
    auto const refuse = [&plan](PlanError error) {
        plan.error = error;
        plan.count = 0;
        return plan;
    };
    if (from.element != to.element) return refuse(PlanError::elements_differ);
    if (from.rank != to.rank) return refuse(PlanError::dimensions_differ);
    for (std::size_t d = 0; d < from.rank; ++d) {
        if (from.dimensions[d].name != to.dimensions[d].name) return refuse(PlanError::dimensions_differ);
        std::size_t const a = from.dimensions[d].extent, b = to.dimensions[d].extent;
        if (a != b && a != dynamic && b != dynamic) return refuse(PlanError::extents_differ);
    }
    if (!detail::same_factors(from, to)) return refuse(PlanError::part_of_axis);
    auto const axes = [&] {
        LayoutValue both = from;
        for (auto const axis : to.axes())
            if (from.placement(axis) == Placement::invariant) both.replicated.push(axis);
        return both.axes();
    }();
    for (auto const axis : axes) {
        auto const a = from.placement(axis), b = to.placement(axis);
        bool const special = a == Placement::partial_max || a == Placement::partial_log_sum_exp;
        bool const becomes = b == Placement::partial_max || b == Placement::partial_log_sum_exp;
        if (a != b && (becomes || (special && !detail::is_value(b)))) return refuse(PlanError::partial_reduction);
    }
    constexpr std::array<StepKind, 8> preference{StepKind::slice,      StepKind::reduce_scatter, StepKind::relabel,
                                                 StepKind::keep_first, StepKind::all_reduce,     StepKind::all_to_all,
                                                 StepKind::zero_pad,   StepKind::all_gather};
    LayoutValue now = from;
    for (bool moved = true; moved;) {
        moved = false;
        for (auto const kind : preference) {
            for (auto const axis : axes) {
                PlanStep step;
                if (!detail::find_step(now, to, axis, step) || step.kind != kind) continue;
                detail::take(now, to, step);
                if (plan.count == 0 || !detail::join(plan.steps[plan.count - 1], step)) plan.push(step);
                moved = true;
                break;
            }
            if (moved) break;
        }
    }
    for (std::size_t d = 0; d < now.rank; ++d)
        if (!(now.dimensions[d].axes == to.dimensions[d].axes)) return refuse(PlanError::axis_order);
    return plan;
}

/// Writes a plan: `all_gather(tp) of seq; all_reduce(dp.ep)`; an empty plan is `nothing`.
constexpr void write(Text& out, PlanValue const& plan, LayoutValue const& layout) {
    if (!plan.valid()) {
        out << plan_error_texts[static_cast<std::size_t>(plan.error)];
        return;
    }
    if (plan.count == 0) out << "nothing";
    for (std::size_t s = 0; s < plan.count; ++s) {
        auto const& step = plan.steps[s];
        out << (s == 0 ? "" : "; ") << step_names[static_cast<std::size_t>(step.kind)] << "(";
        for (std::size_t i = 0; i < step.axes.size(); ++i) out << (i == 0 ? "" : ".") << step.axes[i];
        out << ")";
        if (step.kind == StepKind::all_to_all)
            out << " from " << layout.dimensions[step.from_dimension].name << " to "
                << layout.dimensions[step.dimension].name;
        else if (step.kind == StepKind::all_gather || step.kind == StepKind::reduce_scatter ||
                 step.kind == StepKind::slice || step.kind == StepKind::zero_pad)
            out << " of " << layout.dimensions[step.dimension].name;
        else if (step.kind == StepKind::all_reduce && step.reduction != Placement::partial)
            out << " of " << placement_names[static_cast<std::size_t>(step.reduction)];
    }
}

/// The plan from one layout to another, as a type: `Plan<From, To>::text()`, `Plan<From, To>::value`.
template <class From, class To>
struct Plan {
    static constexpr PlanValue value = make_plan(From::value, To::value);
    static constexpr bool valid = value.valid();
    static constexpr Text written = [] {
        Text out;
        write(out, value, From::value);
        return out;
    }();
    static constexpr std::string_view text() { return written.view(); }
};

/// What acts on gradients: the plan from the dual of To to the dual of From.
template <class From, class To>
using AdjointPlan = Plan<dual_t<To>, dual_t<From>>;

/// True when there is a plan from one layout to the other.
template <class From, class To>
concept Redistributable = make_plan(From::value, To::value).valid();

/// Compiles only when there is a plan from one layout to the other.
template <class From, class To>
consteval void require_redistributable() {
    if constexpr (!Redistributable<From, To>)
        refuse<Text() << Plan<From, To>::text() << ": from " << layout_text<From>.view() << " to "
                      << layout_text<To>.view()>();
}

} // namespace pentad
