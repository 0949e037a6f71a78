// Numbers of each rank, put together over all axes of the mesh, whichever it has.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace pentad::train {

using namespace ml;

namespace detail {
/// From numbers that are summands, or of which the largest counts, over `axes` to the same on all ranks.
inline PlanValue total_plan(AxisNames const& axes, Placement placement) {
    LayoutValue const whole = Layout<f64, Dims<Dim<flat>>>::value;
    LayoutValue from = whole;
    (placement == Placement::partial ? from.partial : from.partial_max) = axes;
    return make_plan(from, whole);
}
} // namespace detail

/// The sums, or the largest, over the ranks along `axes`. Collective over them.
/// @param placement partial or partial_max
template <class Exec>
void total_over(Context<Exec> const& context, AxisNames const& axes, Placement placement, std::span<double> numbers) {
    Tensor<Layout<f64, Dims<Dim<flat>>>, Exec> own(context, {numbers.size()});
    own.set(numbers.data());
    auto shard = pentad::detail::shard_of(own);
    own = {};
    shard = pentad::detail::carry_out(context, detail::total_plan(axes, placement), std::move(shard));
    memory::copy_to_host(context.exec(), numbers.data(), shard.data, numbers.size() * sizeof(double));
}
/// Totals over all ranks of the mesh.
template <class Exec>
void total_over_mesh(Context<Exec> const& context, Placement placement, std::span<double> numbers) {
    total_over(context, axes_of_view(context.communicators().mesh()), placement, numbers);
}

} // namespace pentad::train
