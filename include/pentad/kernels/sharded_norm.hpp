// RMSNorm and LayerNorm of rows that ranks share: what norm.hpp and layer_norm.hpp do in one pass over a row is here
// two, with sums over this rank's columns between them, which the caller adds up over the ranks. `columns` are those of
// a row on all ranks together.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

#include <cstddef>

namespace pentad::kernels {

/// sums [rows, 1]: of x.
template <class T, class Exec>
void row_sums(Exec const& exec, In<T, 2, Exec> x, Out<accumulator_t<T>, 2, Exec> sums) {
    using A = accumulator_t<T>;
    detail::require_extent("row_sums", "sums", sums.extent(0), x.extent(0), "rows of x");
    if (dry("row_sums", x, sums)) return;
    int const width = static_cast<int>(x.extent(1));
    for_each_row(
        "pentad::row_sums", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            A const sum = row.template sum<A>(width, [&](int i) { return A(in[i]); });
            row.once([&] { sums(row.index(), 0) = sum; });
        });
}
PENTAD_KERNEL(row_sums)

/// squares [rows, 1]: of x - sums / columns.
template <class T, class Exec>
void centred_squares(Exec const& exec, In<T, 2, Exec> x, In<accumulator_t<T>, 2, Exec> sums, std::size_t columns,
                     Out<accumulator_t<T>, 2, Exec> squares) {
    using A = accumulator_t<T>;
    detail::require_extent("centred_squares", "sums", sums.extent(0), x.extent(0), "rows of x");
    detail::require_extent("centred_squares", "squares", squares.extent(0), x.extent(0), "rows of x");
    if (dry("centred_squares", x, sums, squares)) return;
    int const width = static_cast<int>(x.extent(1));
    A const count = static_cast<A>(columns);
    for_each_row(
        "pentad::centred_squares", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            A const mean = sums(row.index(), 0) / count;
            A const sum = row.template sum<A>(width, [&](int i) { return (A(in[i]) - mean) * (A(in[i]) - mean); });
            row.once([&] { squares(row.index(), 0) = sum; });
        });
}
PENTAD_KERNEL(centred_squares)
/// squares [rows, 1]: of x.
template <class T, class Exec>
void row_squares(Exec const& exec, In<T, 2, Exec> x, Out<accumulator_t<T>, 2, Exec> squares) {
    using A = accumulator_t<T>;
    detail::require_extent("row_squares", "squares", squares.extent(0), x.extent(0), "rows of x");
    if (dry("row_squares", x, squares)) return;
    int const width = static_cast<int>(x.extent(1));
    for_each_row(
        "pentad::row_squares", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            A const sum = row.template sum<A>(width, [&](int i) { return A(in[i]) * A(in[i]); });
            row.once([&] { squares(row.index(), 0) = sum; });
        });
}
PENTAD_KERNEL(row_squares)

/// y = weight * x * rstd with rstd = 1 / sqrt(squares / columns + eps).
template <class T, class Exec>
void sharded_rms_norm_forward(Exec const& exec, In<T, 2, Exec> x, In<T, 1, Exec> weight,
                              In<accumulator_t<T>, 2, Exec> squares, std::size_t columns, accumulator_t<T> eps,
                              Out<T, 2, Exec> y, Out<accumulator_t<T>, 1, Exec> rstd) {
    using A = accumulator_t<T>;
    detail::require_extent("rms_norm_forward", "weight", weight.extent(0), x.extent(1), "columns of x");
    detail::require_same_shape("rms_norm_forward", "y", y, "x", x);
    detail::require_extent("rms_norm_forward", "squares", squares.extent(0), x.extent(0), "rows of x");
    detail::require_extent("rms_norm_forward", "rstd", rstd.extent(0), x.extent(0), "rows of x");
    if (dry("rms_norm_forward", x, weight, squares, y, rstd)) return;
    int const width = static_cast<int>(x.extent(1));
    A const count = static_cast<A>(columns);
    for_each_row(
        "pentad::rms_norm_forward", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const w = weight.data();
            T* const out = row.of(y);
            A const mean = squares(row.index(), 0) / count;
            A const scale = A(1) / Kokkos::sqrt(mean + eps) + (mean - mean); // NaN, not 0, where the squares overflow
            row.each(width, [&](int i) { out[i] = T(A(w[i]) * (A(in[i]) * scale)); });
            row.once([&] { rstd(row.index()) = scale; });
        });
}
PENTAD_KERNEL(sharded_rms_norm_forward)
/// dots [rows, 1]: of weight dy and x.
template <class T, class Exec>
void rms_norm_dots(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> x, In<T, 1, Exec> weight,
                   Out<accumulator_t<T>, 2, Exec> dots) {
    using A = accumulator_t<T>;
    detail::require_extent("rms_norm_dots", "weight", weight.extent(0), x.extent(1), "columns of x");
    detail::require_same_shape("rms_norm_dots", "dy", dy, "x", x);
    detail::require_extent("rms_norm_dots", "dots", dots.extent(0), x.extent(0), "rows of x");
    if (dry("rms_norm_dots", dy, x, weight, dots)) return;
    int const width = static_cast<int>(x.extent(1));
    for_each_row(
        "pentad::rms_norm_dots", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const dout = row.of(dy);
            T const* const w = weight.data();
            A const dot = row.template sum<A>(width, [&](int i) { return A(w[i]) * A(dout[i]) * A(in[i]); });
            row.once([&] { dots(row.index(), 0) = dot; });
        });
}
PENTAD_KERNEL(rms_norm_dots)
/// dx = rstd * (weight * dy - x rstd^2 dots / columns).
template <class T, class Exec>
void sharded_rms_norm_backward_data(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> x, In<T, 1, Exec> weight,
                                    In<accumulator_t<T>, 1, Exec> rstd, In<accumulator_t<T>, 2, Exec> dots,
                                    std::size_t columns, Out<T, 2, Exec> dx) {
    using A = accumulator_t<T>;
    detail::require_extent("rms_norm_backward_data", "weight", weight.extent(0), x.extent(1), "columns of x");
    detail::require_same_shape("rms_norm_backward_data", "dy", dy, "x", x);
    detail::require_same_shape("rms_norm_backward_data", "dx", dx, "x", x);
    detail::require_extent("rms_norm_backward_data", "rstd", rstd.extent(0), x.extent(0), "rows of x");
    detail::require_extent("rms_norm_backward_data", "dots", dots.extent(0), x.extent(0), "rows of x");
    if (dry("rms_norm_backward_data", dy, x, weight, rstd, dots, dx)) return;
    int const width = static_cast<int>(x.extent(1));
    A const count = static_cast<A>(columns);
    for_each_row(
        "pentad::rms_norm_backward_data", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const dout = row.of(dy);
            T const* const w = weight.data();
            T* const din = row.of(dx);
            A const scale = rstd(row.index());
            A const pull = dots(row.index(), 0) * scale * scale / count;
            row.each(width, [&](int i) { din[i] = T(scale * (A(w[i]) * A(dout[i]) - A(in[i]) * pull)); });
        });
}
PENTAD_KERNEL(sharded_rms_norm_backward_data)

/// y = (x - mean) * rstd * weight + bias with mean = sums / columns and rstd = 1 / sqrt(squares / columns + eps), of
/// the centred squares. moments [rows, 2]: mean and rstd.
template <class T, class Exec>
void sharded_layer_norm_forward(Exec const& exec, In<T, 2, Exec> x, In<T, 1, Exec> weight, In<T, 1, Exec> bias,
                                In<accumulator_t<T>, 2, Exec> sums, In<accumulator_t<T>, 2, Exec> squares,
                                std::size_t columns, accumulator_t<T> eps, Out<T, 2, Exec> y,
                                Out<accumulator_t<T>, 2, Exec> moments) {
    using A = accumulator_t<T>;
    detail::require_extent("layer_norm_forward", "weight", weight.extent(0), x.extent(1), "columns of x");
    detail::require_extent("layer_norm_forward", "bias", bias.extent(0), x.extent(1), "columns of x");
    detail::require_same_shape("layer_norm_forward", "y", y, "x", x);
    detail::require_extent("layer_norm_forward", "sums", sums.extent(0), x.extent(0), "rows of x");
    detail::require_extent("layer_norm_forward", "squares", squares.extent(0), x.extent(0), "rows of x");
    detail::require_extent("layer_norm_forward", "moments", moments.extent(0), x.extent(0), "rows of x");
    if (dry("layer_norm_forward", x, weight, bias, sums, squares, y, moments)) return;
    int const width = static_cast<int>(x.extent(1));
    A const count = static_cast<A>(columns);
    for_each_row(
        "pentad::layer_norm_forward", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const w = weight.data();
            T const* const b = bias.data();
            T* const out = row.of(y);
            A const mean = sums(row.index(), 0) / count, variance = squares(row.index(), 0) / count;
            A const scale = A(1) / Kokkos::sqrt(variance + eps) + (variance - variance); // NaN where it overflows
            row.each(width, [&](int i) { out[i] = T((A(in[i]) - mean) * scale * A(w[i]) + A(b[i])); });
            row.once([&] {
                moments(row.index(), 0) = mean;
                moments(row.index(), 1) = scale;
            });
        });
}
PENTAD_KERNEL(sharded_layer_norm_forward)
/// dots [rows, 2]: the sums of g = weight dy, and of g xhat with xhat = (x - mean) rstd.
template <class T, class Exec>
void layer_norm_dots(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> x, In<T, 1, Exec> weight,
                     In<accumulator_t<T>, 2, Exec> moments, Out<accumulator_t<T>, 2, Exec> dots) {
    using A = accumulator_t<T>;
    detail::require_extent("layer_norm_dots", "weight", weight.extent(0), x.extent(1), "columns of x");
    detail::require_same_shape("layer_norm_dots", "dy", dy, "x", x);
    detail::require_extent("layer_norm_dots", "moments", moments.extent(0), x.extent(0), "rows of x");
    detail::require_extent("layer_norm_dots", "dots", dots.extent(0), x.extent(0), "rows of x");
    if (dry("layer_norm_dots", dy, x, weight, moments, dots)) return;
    int const width = static_cast<int>(x.extent(1));
    for_each_row(
        "pentad::layer_norm_dots", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const dout = row.of(dy);
            T const* const w = weight.data();
            A const mean = moments(row.index(), 0), scale = moments(row.index(), 1);
            A const all = row.template sum<A>(width, [&](int i) { return A(w[i]) * A(dout[i]); });
            A const dot =
                row.template sum<A>(width, [&](int i) { return A(w[i]) * A(dout[i]) * (A(in[i]) - mean) * scale; });
            row.once([&] {
                dots(row.index(), 0) = all;
                dots(row.index(), 1) = dot;
            });
        });
}
PENTAD_KERNEL(layer_norm_dots)
/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)).
template <class T, class Exec>
void sharded_layer_norm_backward_data(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> x, In<T, 1, Exec> weight,
                                      In<accumulator_t<T>, 2, Exec> moments, In<accumulator_t<T>, 2, Exec> dots,
                                      std::size_t columns, Out<T, 2, Exec> dx) {
    using A = accumulator_t<T>;
    detail::require_extent("layer_norm_backward_data", "weight", weight.extent(0), x.extent(1), "columns of x");
    detail::require_same_shape("layer_norm_backward_data", "dy", dy, "x", x);
    detail::require_same_shape("layer_norm_backward_data", "dx", dx, "x", x);
    detail::require_extent("layer_norm_backward_data", "moments", moments.extent(0), x.extent(0), "rows of x");
    detail::require_extent("layer_norm_backward_data", "dots", dots.extent(0), x.extent(0), "rows of x");
    if (dry("layer_norm_backward_data", dy, x, weight, moments, dots, dx)) return;
    int const width = static_cast<int>(x.extent(1));
    A const count = static_cast<A>(columns);
    for_each_row(
        "pentad::layer_norm_backward_data", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const dout = row.of(dy);
            T const* const w = weight.data();
            T* const din = row.of(dx);
            A const mean = moments(row.index(), 0), scale = moments(row.index(), 1);
            A const all = dots(row.index(), 0) / count, dot = dots(row.index(), 1) / count;
            row.each(width, [&](int i) {
                din[i] = T(scale * (A(w[i]) * A(dout[i]) - all - (A(in[i]) - mean) * scale * dot));
            });
        });
}
PENTAD_KERNEL(sharded_layer_norm_backward_data)

} // namespace pentad::kernels
