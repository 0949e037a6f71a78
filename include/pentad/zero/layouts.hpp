// The layouts of a bucket of flat elements, from those of its parameters: what is synchronised, over which axes the
// optimizer state is sharded (ZeRO; Rajbhandari et al. 2020, section 5), and how its squares are counted once.
#pragma once

#include <pentad/layout/plan.hpp>
#include <pentad/mesh/mesh.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::zero {

/// A bucket that every rank holds whole.
template <class T>
using Whole = Layout<T, Dims<Dim<flat>>>;
/// A sum of squares.
using NormSquare = Layout<f64, Dims<>>;

/// Of which ranks the parameters and gradients are, beside what their layouts say.
struct Holders {
    std::string_view stages = pp::name; ///< the axis whose coordinates hold different parameters
    AxisNames copies = {};              ///< axes along which ranks hold the same parameters and see other micro-batches
};

/// What a bucket of parameters is on the mesh.
struct BucketLayouts {
    LayoutValue gradient, state;
    PlanValue reduction;             ///< gradient -> state
    PlanValue gathering;             ///< state -> whole, in any element
    bool counts_squares_here = true; ///< one of the ranks that hold the same reduced gradients adds them to the norm
};

namespace detail {

inline AxisNames joined(AxisNames a, AxisNames const& b) {
    for (auto const axis : b)
        if (!a.contains(axis)) a.push(axis);
    return a;
}
inline bool is_ends(std::string_view name) { return name.starts_with("ends("); }

/// Whether this rank is the first of those that hold the same reduced gradients: those along `different` (axes, or
/// factors of them) hold different ones, and so do the stages. `tied`: of the stages only the ends hold them.
template <class Communicators>
bool is_first_holder(Communicators const& communicators, AxisNames const& different, Holders const& holders,
                     bool tied) {
    for (auto const& axis : communicators.mesh()) {
        std::string const name(axis.name);
        bool const is_of_stages = axis.name == holders.stages;
        bool differs_outside = is_of_stages && !tied;
        bool differs_inside = differs_outside && !holders.copies.contains("inner(" + name + ")");
        for (auto const part : different) {
            if (whole_axis_name(part) != axis.name) continue;
            differs_outside = differs_outside || !part.starts_with("inner(");
            differs_inside = differs_inside || !part.starts_with("outer(");
        }
        std::string const outside = is_of_stages && tied ? "ends(" : "outer(";
        if (!differs_outside && communicators.coordinate(outside + name + ")") != 0) return false;
        if (!differs_inside && communicators.coordinate("inner(" + name + ")") != 0) return false;
    }
    return true;
}

} // namespace detail

/// @param stored how its parameters lie on the mesh
/// @param synchronised the axes over which their gradients are partial
/// @param zero_stage 0: optimizer state and reduced gradient on every rank; 1: sharded over the axes over which the
/// gradient was partial (the holders of a tied embedding each keep theirs)
template <class A, class Communicators>
BucketLayouts bucket_layouts(Communicators const& communicators, LayoutValue const& stored,
                             AxisNames const& synchronised, Holders const& holders, int zero_stage) {
    auto const sync = detail::joined(synchronised, holders.copies);
    bool tied = false;
    AxisNames shards;
    for (auto const axis : sync) {
        if (detail::is_ends(axis))
            tied = true;
        else if (zero_stage > 0)
            shards.push(axis);
    }
    LayoutValue const whole = Whole<A>::value;
    BucketLayouts result{.gradient = whole, .state = whole, .reduction = {}, .gathering = {}};
    result.gradient.partial = sync;
    result.state.dimensions[0].axes = shards;
    result.reduction = make_plan(result.gradient, result.state);
    result.gathering = make_plan(result.state, whole);
    for (auto const* plan : {&result.reduction, &result.gathering})
        if (!plan->valid())
            throw std::invalid_argument(std::string(plan_error_texts[static_cast<std::size_t>(plan->error)]) + ": " +
                                        to_string(result.gradient) + " and " + to_string(result.state));

    AxisNames different = shards;
    for (std::size_t d = 0; d < stored.rank; ++d) different = detail::joined(different, stored.dimensions[d].axes);
    result.counts_squares_here = detail::is_first_holder(communicators, different, holders, tied);
    return result;
}

} // namespace pentad::zero
