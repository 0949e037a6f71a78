// The plan that takes a tensor from one layout to another: which collectives, over which
// axes, in which order. The backward plan is the plan between the duals: it is derived, never written.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/layout/step.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace pentad {

/// Why two layouts have no plan.
enum class PlanError : std::uint8_t {
    none,
    elements_differ,
    dimensions_differ,
    extents_differ,
    partial_reduction,
    part_of_axis,
};

/// One sentence for each PlanError: what is wrong and what to do.
inline constexpr std::array<std::string_view, 6> plan_error_texts{
    "",
    "pentad: the layouts have different elements: convert the tensor before it is redistributed",
    "pentad: the layouts have different dimensions: redistribution keeps the names and the order of the dimensions",
    "pentad: the layouts give a dimension two different extents",
    "pentad: a partial maximum, minimum or log-sum-exp can only be reduced, to replicated or invariant, and nothing "
    "becomes one",
    "pentad: one layout names an axis and the other a factor of it: name outer and inner in both",
};

struct PlanValue {
    PlanError error = PlanError::none;
    std::size_t count = 0;
    std::array<PlanStep, 16> steps{};
    ExchangeValue exchange; ///< of the step that is one: there is at most one

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
    for (auto* list :
         {&layout.replicated, &layout.partial, &layout.partial_max, &layout.partial_min, &layout.partial_log_sum_exp})
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

/// How many of the major axes of two lists are the same.
constexpr std::size_t common_axes(AxisNames const& a, AxisNames const& b) {
    std::size_t common = 0;
    while (common < a.size() && common < b.size() && a[common] == b[common]) ++common;
    return common;
}

/// True when `now` is a prefix of `target` and the next axis of the target is `axis`.
constexpr bool enters_next(AxisNames const& now, AxisNames const& target, std::string_view axis) {
    return now.size() < target.size() && target[now.size()] == axis && common_axes(now, target) == now.size();
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

/// Takes all steps of a kind that can be taken one after the other.
constexpr void take_all(PlanValue& plan, LayoutValue& now, LayoutValue const& to, AxisNames const& axes,
                        StepKind kind) {
    for (bool moved = true; moved;) {
        moved = false;
        for (auto const axis : axes) {
            PlanStep step;
            if (!find_step(now, to, axis, step) || step.kind != kind) continue;
            take(now, to, step);
            if (plan.count == 0 || !join(plan.steps[plan.count - 1], step)) plan.push(step);
            moved = true;
            break;
        }
    }
}

constexpr bool same_dimensions(LayoutValue const& a, LayoutValue const& b) {
    for (std::size_t d = 0; d < a.rank; ++d)
        if (!(a.dimensions[d].axes == b.dimensions[d].axes)) return false;
    return true;
}

constexpr bool exchanges_once(PlanValue const& plan) {
    int exchanges = 0;
    for (auto const& step : plan) exchanges += step.kind == StepKind::all_to_all ? 1 : 0;
    return exchanges <= 1;
}

/// Whether an axis is gathered on the way.
constexpr bool grows(LayoutValue const& now, LayoutValue const& to, AxisNames const& axes) {
    for (auto const axis : axes)
        if (now.placement(axis) == Placement::shard && is_value(to.placement(axis))) return true;
    return false;
}

constexpr AxisNames sorted(AxisNames names) {
    std::sort(names.names.begin(), names.names.begin() + static_cast<std::ptrdiff_t>(names.count));
    return names;
}

/// One exchange for every axis that still has to move; axes whose sum stays whole are left to an all-reduce. Axes are
/// in the order of their names, so that a plan and its adjoint use one communicator.
constexpr void push_exchange(PlanValue& plan, LayoutValue const& now, LayoutValue const& to, AxisNames const& axes) {
    PlanStep step{.kind = StepKind::exchange};
    auto& exchange = plan.exchange;
    for (std::size_t d = 0; d < now.rank; ++d) {
        auto const &before = now.dimensions[d].axes, &after = to.dimensions[d].axes;
        auto const common = common_axes(before, after); // they stay: each of their ranks has all that its group needs
        for (std::size_t i = common; i < before.size(); ++i) exchange.before[d].push(before[i]);
        for (std::size_t i = common; i < after.size(); ++i) exchange.after[d].push(after[i]);
    }
    for (auto const axis : sorted(axes)) {
        bool cut_before = false, cut_after = false;
        for (std::size_t d = 0; d < now.rank; ++d) {
            cut_before = cut_before || exchange.before[d].contains(axis);
            cut_after = cut_after || exchange.after[d].contains(axis);
        }
        if (!cut_before && !cut_after) continue;
        step.axes.push(axis);
        if (!cut_before && now.placement(axis) == Placement::partial)
            exchange.summed.push(axis);
        else if (!cut_before || (!cut_after && to.placement(axis) == Placement::partial))
            exchange.same.push(axis);
    }
    plan.push(step);
}

/// Whether two layouts have the same halos but for what ghost cells hold.
constexpr bool same_halos(LayoutValue const& a, LayoutValue const& b) {
    for (std::size_t d = 0; d < a.rank; ++d)
        if (a.dimensions[d].width != b.dimensions[d].width || a.dimensions[d].boundary != b.dimensions[d].boundary)
            return false;
    return true;
}
constexpr LayoutValue without_halo(LayoutValue layout) {
    for (auto& dimension : layout.dimensions) {
        dimension.ghosts = Ghosts::none;
        dimension.boundary = Boundary::open;
        dimension.width = 0;
    }
    return layout;
}
/// A step on the halos of those dimensions of a layout of which is_of(d) is true, if there are any.
template <class IsOf>
constexpr void push_halo(PlanValue& plan, StepKind kind, LayoutValue const& layout, IsOf const& is_of) {
    PlanStep step{.kind = kind};
    bool is_any = false;
    for (std::size_t d = 0; d < layout.rank; ++d) {
        auto const& dimension = layout.dimensions[d];
        if (dimension.width == 0 || !is_of(d)) continue;
        is_any = true;
        step.halo.width[d] = static_cast<std::uint32_t>(dimension.width);
        step.halo.boundary[d] = dimension.boundary;
        for (auto const axis : dimension.axes) step.axes.push(axis);
    }
    if (is_any) plan.push(step);
}

} // namespace detail

constexpr PlanValue make_plan(LayoutValue const& from, LayoutValue const& to);

/// A plan where either layout has halos: in place where only ghost cells change, else without them on the way.
constexpr PlanValue make_plan_with_halos(LayoutValue const& from, LayoutValue const& to) {
    auto plan = make_plan(detail::without_halo(from), detail::without_halo(to));
    if (!plan.valid()) return plan;
    auto const held = [](LayoutValue const& layout, std::size_t d) { return layout.dimensions[d].ghosts; };
    auto const steps = plan;
    plan.count = 0;
    bool const in_place = steps.count == 0 && detail::same_halos(from, to);
    detail::push_halo(plan, StepKind::add_halo, from, [&](std::size_t d) {
        return held(from, d) == Ghosts::summands && !(in_place && held(to, d) == Ghosts::summands);
    });
    if (in_place) {
        detail::push_halo(plan, StepKind::clear_halo, from, [&](std::size_t d) {
            return held(from, d) != Ghosts::summands && held(to, d) == Ghosts::summands;
        });
    } else {
        detail::push_halo(plan, StepKind::drop_halo, from, [](std::size_t) { return true; });
        for (auto const& step : steps) plan.push(step);
        detail::push_halo(plan, StepKind::make_halo, to, [](std::size_t) { return true; });
    }
    detail::push_halo(plan, StepKind::fill_halo, to, [&](std::size_t d) {
        return held(to, d) == Ghosts::filled && !(in_place && held(from, d) == Ghosts::filled);
    });
    return plan;
}

/// The plan from one layout to another: collectives axis by axis, which enter and leave a dimension at its minor end.
/// Where these cannot reach the target, or would send more than is missing, one exchange replaces all of them but
/// all-reduces.
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
    if (from.has_halo() || to.has_halo()) return make_plan_with_halos(from, to);
    auto const axes = [&] {
        LayoutValue both = from;
        for (auto const axis : to.axes())
            if (from.placement(axis) == Placement::invariant) both.replicated.push(axis);
        return both.axes();
    }();
    for (auto const axis : axes) {
        auto const a = from.placement(axis), b = to.placement(axis);
        if (a != b && (is_other_reduction(b) || (is_other_reduction(a) && !detail::is_value(b))))
            return refuse(PlanError::partial_reduction);
    }
    // First steps that send nothing, then each kind of collective in turn, from those that shrink the tensor to those
    // that make it grow: no element is sent twice, or dropped after it was sent.
    LayoutValue now = from;
    for (auto const kind : {StepKind::slice, StepKind::relabel, StepKind::keep_first})
        detail::take_all(plan, now, to, axes, kind);
    PlanValue in_turn = plan;
    LayoutValue end = now;
    for (auto const kind : {StepKind::reduce_scatter, StepKind::all_reduce, StepKind::all_to_all, StepKind::all_gather,
                            StepKind::zero_pad})
        detail::take_all(in_turn, end, to, axes, kind);
    if (detail::same_dimensions(end, to) && detail::exchanges_once(in_turn)) return in_turn;
    bool const is_reduced_first = detail::grows(now, to, axes);
    if (is_reduced_first) detail::take_all(plan, now, to, axes, StepKind::all_reduce);
    detail::push_exchange(plan, now, to, axes);
    if (!is_reduced_first) detail::take_all(plan, now, to, axes, StepKind::all_reduce);
    return plan;
}

/// Writes a plan: `all_gather(tp) of seq; all_reduce(dp.cp)`; an empty plan is `nothing`.
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
    // Two types of elements may have one name, by which plans compare them.
    constexpr bool have_one_name =
        Redistributable<From, To> && !std::is_same_v<typename From::element, typename To::element>;
    constexpr auto error = have_one_name ? PlanError::elements_differ : Plan<From, To>::value.error;
    if constexpr (error != PlanError::none)
        refuse<Text() << plan_error_texts[static_cast<std::size_t>(error)] << ": from " << layout_text<From>.view()
                      << " to " << layout_text<To>.view()>();
}

} // namespace pentad
