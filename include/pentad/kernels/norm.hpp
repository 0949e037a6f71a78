// RMSNorm as LlamaRMSNorm defines it, forward and backward, the weight's gradient apart (zero-bubble
// schedules want it later). Between the load and the store everything is in the accumulator type.
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// y = weight * x * rstd with rstd = 1 / sqrt(mean(x^2) + eps), a row at a time; rstd is kept for the backward passes.
template <class T, class Exec>
void rms_norm_forward(Exec const& exec, In<T, 2, Exec> x, In<T, 1, Exec> weight, accumulator_t<T> eps,
                      Out<T, 2, Exec> y, Out<accumulator_t<T>, 1, Exec> rstd) {
    using A = accumulator_t<T>;
    int const hidden = static_cast<int>(x.extent(1));
    detail::require_extent("rms_norm_forward", "weight", weight.extent(0), x.extent(1), "hidden of x");
    detail::require_same_shape("rms_norm_forward", "y", y, "x", x);
    detail::require_extent("rms_norm_forward", "rstd", rstd.extent(0), x.extent(0), "rows of x");
    if (dry("rms_norm_forward", x, weight, y, rstd)) return;
    for_each_row(
        "pentad::rms_norm_forward", exec, x.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const w = weight.data();
            T* const out = row.of(y);
            A const squares = row.template sum<A>(hidden, [&](int i) { return A(in[i]) * A(in[i]); });
            A const mean = squares / A(hidden);
            A const scale = A(1) / Kokkos::sqrt(mean + eps) + (mean - mean); // NaN, not 0, where the squares overflow
            row.each(hidden, [&](int i) { out[i] = T(A(w[i]) * (A(in[i]) * scale)); });
            row.once([&] { rstd(row.index()) = scale; });
        });
}
PENTAD_KERNEL(rms_norm_forward)

/// dx (+)= rstd * (weight * dy - xhat * mean(weight * dy * xhat)), xhat = x * rstd; `add` adds to what dx holds.
template <class T, class Exec>
void rms_norm_backward_data(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> x, In<T, 1, Exec> weight,
                            In<accumulator_t<T>, 1, Exec> rstd, Out<T, 2, Exec> dx, bool add) {
    using A = accumulator_t<T>;
    int const hidden = static_cast<int>(x.extent(1));
    detail::require_extent("rms_norm_backward_data", "weight", weight.extent(0), x.extent(1), "hidden of x");
    detail::require_same_shape("rms_norm_backward_data", "dy", dy, "x", x);
    detail::require_same_shape("rms_norm_backward_data", "dx", dx, "x", x);
    detail::require_extent("rms_norm_backward_data", "rstd", rstd.extent(0), x.extent(0), "rows of x");
    if (add ? dry("rms_norm_backward_data", dy, x, weight, rstd, dx, dx)
            : dry("rms_norm_backward_data", dy, x, weight, rstd, dx))
        return;
    for_each_row(
        "pentad::rms_norm_backward_data", exec, x.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const dout = row.of(dy);
            T const* const w = weight.data();
            T* const din = row.of(dx);
            A const scale = rstd(row.index());
            A const dot = row.template sum<A>(hidden, [&](int i) { return A(w[i]) * A(dout[i]) * A(in[i]); });
            A const pull = dot * scale * scale / A(hidden);
            if (add)
                row.each(hidden,
                         [&](int i) { din[i] = T(A(din[i]) + scale * (A(w[i]) * A(dout[i]) - A(in[i]) * pull)); });
            else
                row.each(hidden, [&](int i) { din[i] = T(scale * (A(w[i]) * A(dout[i]) - A(in[i]) * pull)); });
        });
}
PENTAD_KERNEL(rms_norm_backward_data)

/// dweight += sum over rows of dy * x * rstd.
template <class T, class Exec>
void rms_norm_backward_weight(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> x, In<accumulator_t<T>, 1, Exec> rstd,
                              Out<accumulator_t<T>, 1, Exec> dweight) {
    using A = accumulator_t<T>;
    detail::require_extent("rms_norm_backward_weight", "dweight", dweight.extent(0), x.extent(1), "hidden of x");
    detail::require_same_shape("rms_norm_backward_weight", "dy", dy, "x", x);
    detail::require_extent("rms_norm_backward_weight", "rstd", rstd.extent(0), x.extent(0), "rows of x");
    if (dry("rms_norm_backward_weight", dy, x, rstd, dweight, dweight)) return;
    sum_over_rows<A>(
        "pentad::rms_norm_backward_weight", exec, x.extent(0), x.extent(1),
        KOKKOS_LAMBDA(i64 r, int j) { return A(dy(r, j)) * A(x(r, j)) * rstd(r); },
        KOKKOS_LAMBDA(int j, A total) { dweight(j) += total; });
}
PENTAD_KERNEL(rms_norm_backward_weight)

} // namespace pentad::kernels
