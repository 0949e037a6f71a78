// The layouts of a bucket of flat elements, from those of its parameters: what is synchronised, over which axes
// parameters, gradients and optimizer state are sharded, and how squares are counted once.
#pragma once

#include <pentad/layout/local_steps.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/layout/zero_sharding.hpp>
#include <pentad/mesh/mesh.hpp>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::zero {

using namespace ml;

/// A bucket that every rank holds whole.
template <class T>
using Whole = Layout<T, Dims<Dim<flat>>>;
/// A sum of squares.
using NormSquare = Layout<f64, Dims<>>;

/// The ranks that hold the parameters and gradients, as far as their layouts do not say.
struct Holders {
    std::string_view stages = pp::name; ///< the axis whose coordinates hold different parameters
    AxisNames copies = {};              ///< axes along which ranks hold the same parameters and see other micro-batches
    LocalSteps local = {};              ///< whether ranks along outer(dp) hold their own between averages
};

/// Whether the same axes shard both, in the same order.
inline bool is_sharded_alike(LayoutValue const& a, LayoutValue const& b) {
    auto const shards = [](LayoutValue const& layout) {
        AxisNames axes;
        for (std::size_t d = 0; d < layout.rank; ++d)
            for (auto const axis : layout.dimensions[d].axes) axes.push(axis);
        return axes;
    };
    return shards(a) == shards(b);
}

/// The layouts of a bucket of parameters. A step carries out the plans gradient -> sum (after each micro-batch, or
/// once)
/// -> state for the gradients, and state -> stored -> whole for the parameters.
struct BucketLayouts {
    LayoutValue gradient;            ///< of the ranks' own summands, whole
    LayoutValue sum;                 ///< of what is kept of the gradients from one micro-batch to the next
    LayoutValue state;               ///< of the reduced gradients and the optimizer state
    LayoutValue stored;              ///< of the parameters between their uses
    PlanValue accumulation;          ///< gradient -> sum
    PlanValue reduction;             ///< sum -> state
    PlanValue storing;               ///< state -> stored
    PlanValue gathering;             ///< stored -> whole
    PlanValue exporting;             ///< state -> whole
    PlanValue averaging;             ///< of local steps: summands of the state over the groups -> state
    bool meets_stages = false;       ///< it is reduced over ranks of other stages, or of copies of this one
    bool counts_squares_here = true; ///< one of the ranks that hold the same reduced gradients adds them to the norm
};

namespace detail {

inline AxisNames joined(AxisNames a, AxisNames const& b) {
    for (auto const axis : b)
        if (!a.contains(axis)) a.push(axis);
    return a;
}

/// Whether this rank is the first of those that hold the same reduced gradients: those along `different` (axes, or
/// factors of them) hold different ones, and so do the stages. `tied`: of the stages only the ends hold them.
/// @param view the axes of the mesh as the parameters see it
template <class Communicators>
bool is_first_holder(Communicators const& communicators, AxisNames const& view, AxisNames const& different,
                     Holders const& holders, bool tied) {
    for (auto const axis : view) {
        std::string const name(axis);
        bool const is_of_stages = axis == holders.stages;
        unsigned differing = 0; // factors
        if (is_of_stages && !tied) differing = holders.copies.contains("inner(" + name + ")") ? 1 : 7;
        for (auto const part : different)
            if (whole_axis_name(part) == axis) differing |= factors_of(part);
        std::array<std::string, axis_factors> const factors{(is_of_stages && tied ? "ends(" : "outer(") + name + ")",
                                                            "outer(inner(" + name + "))", "inner(inner(" + name + "))"};
        for (std::size_t i = 0; i < axis_factors; ++i)
            if ((differing >> i & 1) == 0 && communicators.coordinate(factors[i]) != 0) return false;
    }
    return true;
}

} // namespace detail

/// Groups that train apart have whole copies of the experts: they are the same ranks in both views.
/// @throws std::invalid_argument where they have not
template <class Communicators>
void require_whole_copies(Communicators const& communicators) {
    if (!are_aligned(communicators.mesh(), outer<ml::dp>::name, outer<ml::edp>::name))
        throw std::invalid_argument("groups of " + std::to_string(communicators.extent(inner<ml::dp>::name)) +
                                    " ranks along dp that train apart do not hold whole copies of the experts: make "
                                    "ep smaller or the groups larger, and the mesh with model::split_data()");
}

/// @param stored how its parameters lie on the mesh
/// @param synchronised the axes over which their gradients are partial
template <class A, class Communicators>
BucketLayouts bucket_layouts(Communicators const& communicators, LayoutValue const& stored,
                             AxisNames const& synchronised, Holders const& holders, ZeroSharding const& sharding) {
    auto const axes =
        zero_axes(holders.local.together(detail::joined(synchronised, holders.copies)), sharding, holders.stages);
    LayoutValue const whole = Whole<A>::value;
    BucketLayouts result;
    result.gradient = result.sum = result.state = result.stored = whole;
    result.gradient.partial = axes.partial;
    result.sum.partial = axes.partial;
    result.state.dimensions[0].axes = axes.shards;
    if (sharding.reduces_each_micro_batch()) {
        result.sum.dimensions[0].axes = axes.in_step;
        result.sum.partial = {};
        for (auto const axis : axes.partial)
            if (!axes.in_step.contains(axis)) result.sum.partial.push(axis);
    }
    if (sharding.shards_parameters()) result.stored.dimensions[0].axes = axes.in_step;
    auto const plan = [](LayoutValue const& from, LayoutValue const& to) {
        auto const made = make_plan(from, to);
        if (!made.valid())
            throw std::invalid_argument(std::string(plan_error_texts[static_cast<std::size_t>(made.error)]) + ": " +
                                        to_string(from) + " and " + to_string(to));
        return made;
    };
    result.accumulation = plan(result.gradient, result.sum);
    result.reduction = plan(result.sum, result.state);
    result.storing = plan(result.state, result.stored);
    result.gathering = plan(result.stored, whole);
    result.exporting = plan(result.state, whole);
    AxisNames different = axes.shards;
    for (std::size_t d = 0; d < stored.rank; ++d) different = detail::joined(different, stored.dimensions[d].axes);
    auto const view = axes_of_view(communicators.mesh(), detail::joined(different, axes.partial));
    bool const of_experts = view.contains(ml::edp::name);
    if (holders.local.is_on() && of_experts) require_whole_copies(communicators);
    auto const apart = holders.local.apart(of_experts);
    auto summands = result.state;
    summands.partial = apart;
    result.averaging = plan(summands, result.state);

    bool tied = false;
    for (auto const axis : axes.partial) {
        tied = tied || axis.starts_with("ends(");
        if (whole_axis_name(axis) == holders.stages && communicators.extent(axis) > 1) result.meets_stages = true;
    }
    result.counts_squares_here =
        detail::is_first_holder(communicators, view, detail::joined(different, apart), holders, tied);
    return result;
}

} // namespace pentad::zero
