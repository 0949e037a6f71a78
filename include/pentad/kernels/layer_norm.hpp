// LayerNorm (Ba et al. 2016, eq. 3 and 4), forward and backward, the gradients of weight and bias apart. Between the
// load and the store everything is in the accumulator type.
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// y = (x - mean) * rstd * weight + bias with rstd = 1 / sqrt(variance + eps), a row at a time; mean and rstd [rows, 2]
/// are kept for the backward passes.
template <class T, class Exec>
void layer_norm_forward(Exec const& exec, In<T, 2, Exec> x, In<T, 1, Exec> weight, In<T, 1, Exec> bias,
                        accumulator_t<T> eps, Out<T, 2, Exec> y, Out<accumulator_t<T>, 2, Exec> moments) {
    using A = accumulator_t<T>;
    int const hidden = static_cast<int>(x.extent(1));
    detail::require_extent("layer_norm_forward", "weight", weight.extent(0), x.extent(1), "hidden of x");
    detail::require_extent("layer_norm_forward", "bias", bias.extent(0), x.extent(1), "hidden of x");
    detail::require_same_shape("layer_norm_forward", "y", y, "x", x);
    detail::require_extent("layer_norm_forward", "moments", moments.extent(0), x.extent(0), "rows of x");
    if (dry("layer_norm_forward", x, weight, bias, y, moments)) return;
    for_each_row(
        "pentad::layer_norm_forward", exec, x.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const w = weight.data();
            T const* const b = bias.data();
            T* const out = row.of(y);
            A const mean = row.template sum<A>(hidden, [&](int i) { return A(in[i]); }) / A(hidden);
            A const variance =
                row.template sum<A>(hidden, [&](int i) { return (A(in[i]) - mean) * (A(in[i]) - mean); }) / A(hidden);
            A const scale = A(1) / Kokkos::sqrt(variance + eps) + (variance - variance); // NaN where it overflows
            row.each(hidden, [&](int i) { out[i] = T((A(in[i]) - mean) * scale * A(w[i]) + A(b[i])); });
            row.once([&] {
                moments(row.index(), 0) = mean;
                moments(row.index(), 1) = scale;
            });
        });
}
PENTAD_KERNEL(layer_norm_forward)

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = weight * dy and xhat = (x - mean) * rstd.
template <class T, class Exec>
void layer_norm_backward_data(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> x, In<T, 1, Exec> weight,
                              In<accumulator_t<T>, 2, Exec> moments, Out<T, 2, Exec> dx) {
    using A = accumulator_t<T>;
    int const hidden = static_cast<int>(x.extent(1));
    detail::require_extent("layer_norm_backward_data", "weight", weight.extent(0), x.extent(1), "hidden of x");
    detail::require_same_shape("layer_norm_backward_data", "dy", dy, "x", x);
    detail::require_same_shape("layer_norm_backward_data", "dx", dx, "x", x);
    detail::require_extent("layer_norm_backward_data", "moments", moments.extent(0), x.extent(0), "rows of x");
    if (dry("layer_norm_backward_data", dy, x, weight, moments, dx)) return;
    for_each_row(
        "pentad::layer_norm_backward_data", exec, x.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const dout = row.of(dy);
            T const* const w = weight.data();
            T* const din = row.of(dx);
            A const mean = moments(row.index(), 0), scale = moments(row.index(), 1);
            A const all = row.template sum<A>(hidden, [&](int i) { return A(w[i]) * A(dout[i]); }) / A(hidden);
            A const dot = row.template sum<A>(hidden, [&](int i) {
                return A(w[i]) * A(dout[i]) * (A(in[i]) - mean) * scale;
            }) / A(hidden);
            row.each(hidden, [&](int i) {
                din[i] = T(scale * (A(w[i]) * A(dout[i]) - all - (A(in[i]) - mean) * scale * dot));
            });
        });
}
PENTAD_KERNEL(layer_norm_backward_data)

/// dweight += sum over rows of dy * xhat, dbias += sum over rows of dy.
template <class T, class Exec>
void layer_norm_backward_weight(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> x,
                                In<accumulator_t<T>, 2, Exec> moments, Out<accumulator_t<T>, 1, Exec> dweight,
                                Out<accumulator_t<T>, 1, Exec> dbias) {
    using A = accumulator_t<T>;
    detail::require_extent("layer_norm_backward_weight", "dweight", dweight.extent(0), x.extent(1), "hidden of x");
    detail::require_extent("layer_norm_backward_weight", "dbias", dbias.extent(0), x.extent(1), "hidden of x");
    detail::require_same_shape("layer_norm_backward_weight", "dy", dy, "x", x);
    detail::require_extent("layer_norm_backward_weight", "moments", moments.extent(0), x.extent(0), "rows of x");
    if (dry("layer_norm_backward_weight", dy, x, moments, dweight, dweight, dbias, dbias)) return;
    sum_over_rows<A>(
        "pentad::layer_norm_backward_weight", exec, x.extent(0), x.extent(1),
        KOKKOS_LAMBDA(i64 r, int j) { return A(dy(r, j)) * (A(x(r, j)) - moments(r, 0)) * moments(r, 1); },
        KOKKOS_LAMBDA(int j, A total) { dweight(j) += total; });
    sum_over_rows<A>(
        "pentad::layer_norm_backward_bias", exec, x.extent(0), x.extent(1),
        KOKKOS_LAMBDA(i64 r, int j) { return A(dy(r, j)); }, KOKKOS_LAMBDA(int j, A total) { dbias(j) += total; });
}
PENTAD_KERNEL(layer_norm_backward_weight)

} // namespace pentad::kernels
