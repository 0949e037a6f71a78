// What surrounds the scan of a state-space layer: the steps of time that discretise it, and the skip past it (Dao and
// Gu 2024, arXiv 2405.21060, section 7; transformers' Mamba2Mixer).
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/rows.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::kernels {

// Shapes, throughout: rows are tokens; what belongs to heads is [rows, heads], what these are made of [rows, heads *
// head_dim]. bias, log_rate and skip are [heads].

/// What steps of time are clamped to.
struct StepLimits {
    double least, most;
};

/// step = clamp(softplus(raw + bias)), decay = -exp(log_rate) step, scaled = step x.
template <class T, class Exec>
void state_space_steps(Exec const& exec, In<T, 2, Exec> raw, In<T, 1, Exec> bias, In<T, 1, Exec> log_rate,
                       StepLimits limits, In<T, 2, Exec> x, Out<accumulator_t<T>, 2, Exec> step,
                       Out<accumulator_t<T>, 2, Exec> decay, Out<T, 2, Exec> scaled) {
    using A = accumulator_t<T>;
    detail::require_same_shape("state_space_steps", "step", step, "raw", raw);
    detail::require_same_shape("state_space_steps", "decay", decay, "raw", raw);
    detail::require_same_shape("state_space_steps", "scaled", scaled, "x", x);
    detail::require_extent("state_space_steps", "bias", bias.extent(0), raw.extent(1), "heads");
    detail::require_extent("state_space_steps", "log_rate", log_rate.extent(0), raw.extent(1), "heads");
    if (dry("state_space_steps", raw, x, step, decay, scaled)) return;
    int const heads = static_cast<int>(raw.extent(1)), head_dim = static_cast<int>(x.extent(1)) / heads;
    A const least = static_cast<A>(limits.least), most = static_cast<A>(limits.most);
    for_each_row(
        "pentad::state_space_steps", exec, raw.extent(0), x.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T* const out = row.of(scaled);
            A* const s = row.of(step);
            row.each(heads, [&](int h) {
                A const value = math::softplus(A(raw(row.index(), h)) + A(bias(h)));
                s[h] = value < least ? least : value > most ? most : value;
                decay(row.index(), h) = -math::exp(A(log_rate(h))) * s[h];
            });
            row.sync();
            row.each(heads, head_dim, [&](int h, int i) { out[h * head_dim + i] = T(s[h] * A(in[h * head_dim + i])); });
        });
}
PENTAD_KERNEL(state_space_steps)

/// Its adjoint, together with that of a skip x (the D of the paper): dx = step dscaled + skip dy, in place of dscaled;
/// of what is in front of the softplus in draw, and once more in `dbias_terms`, whose sums over rows are the gradient
/// of the bias. ddecay becomes the terms of the gradient of log_rate.
/// @param dy of the scan's output with the skip added
template <class T, class Exec>
void state_space_steps_backward(Exec const& exec, In<T, 2, Exec> raw, In<T, 1, Exec> bias, In<T, 1, Exec> log_rate,
                                In<T, 1, Exec> skip, StepLimits limits, In<T, 2, Exec> x,
                                In<accumulator_t<T>, 2, Exec> step, In<T, 2, Exec> dy,
                                Out<accumulator_t<T>, 2, Exec> dscaled, Out<accumulator_t<T>, 2, Exec> ddecay,
                                Out<T, 2, Exec> draw, Out<accumulator_t<T>, 2, Exec> dbias_terms) {
    using A = accumulator_t<T>;
    detail::require_same_shape("state_space_steps_backward", "dscaled", dscaled, "x", x);
    detail::require_same_shape("state_space_steps_backward", "dy", dy, "x", x);
    if (dry("state_space_steps_backward", raw, x, step, dy, dscaled, dscaled, ddecay, ddecay, draw, dbias_terms))
        return;
    int const heads = static_cast<int>(raw.extent(1)), head_dim = static_cast<int>(x.extent(1)) / heads;
    A const least = static_cast<A>(limits.least), most = static_cast<A>(limits.most);
    for_each_row(
        "pentad::state_space_steps_backward", exec, raw.extent(0), x.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const upstream = row.of(dy);
            A* const gradient = row.of(dscaled);
            for (int h = 0; h < heads; ++h) {
                T const* const of_head = in + h * head_dim;
                A* const d = gradient + h * head_dim;
                A const dot = row.template sum<A>(head_dim, [&](int i) { return d[i] * A(of_head[i]); });
                row.sync();
                A const s = step(row.index(), h), through = A(skip(h));
                row.each(head_dim, [&](int i) { d[i] = s * d[i] + through * A(upstream[h * head_dim + i]); });
                row.once([&] {
                    A const rate = -math::exp(A(log_rate(h))), of_decay = ddecay(row.index(), h);
                    A const before = A(raw(row.index(), h)) + A(bias(h)), value = math::softplus(before);
                    bool const is_inside = value >= least && value <= most;
                    A const result = is_inside ? (dot + of_decay * rate) * math::sigmoid(before) : A(0);
                    dbias_terms(row.index(), h) = result;
                    draw(row.index(), h) = T(result);
                    ddecay(row.index(), h) = of_decay * rate * s;
                });
            }
        });
}
PENTAD_KERNEL(state_space_steps_backward)

/// The sums over rows that are the gradients of the bias and of log_rate, from the terms that
/// state_space_steps_backward leaves.
template <class A, class Exec>
void state_space_head_gradients(Exec const& exec, In<A, 2, Exec> bias_terms, In<A, 2, Exec> log_rate_terms,
                                Out<A, 1, Exec> dbias, Out<A, 1, Exec> dlog_rate) {
    if (dry("state_space_head_gradients", bias_terms, log_rate_terms, dbias, dlog_rate)) return;
    sum_over_rows<A>(
        "pentad::state_space_head_gradients", exec, bias_terms.extent(0), bias_terms.extent(1),
        KOKKOS_LAMBDA(i64 r, int h) { return bias_terms(r, h); }, KOKKOS_LAMBDA(int h, A total) { dbias(h) = total; });
    sum_over_rows<A>(
        "pentad::state_space_head_gradients", exec, log_rate_terms.extent(0), log_rate_terms.extent(1),
        KOKKOS_LAMBDA(i64 r, int h) { return log_rate_terms(r, h); },
        KOKKOS_LAMBDA(int h, A total) { dlog_rate(h) = total; });
}
PENTAD_KERNEL_OF_ACCUMULATORS(state_space_head_gradients)

/// y += skip x.
template <class T, class Exec>
void state_space_skip(Exec const& exec, In<T, 2, Exec> x, In<T, 1, Exec> skip, Out<T, 2, Exec> y) {
    using A = accumulator_t<T>;
    detail::require_same_shape("state_space_skip", "x", x, "y", y);
    if (dry("state_space_skip", x, y, y)) return;
    int const heads = static_cast<int>(skip.extent(0)), head_dim = static_cast<int>(y.extent(1)) / heads;
    for_each_row(
        "pentad::state_space_skip", exec, y.extent(0), y.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T* const out = row.of(y);
            row.each(heads, head_dim, [&](int h, int i) {
                int const at = h * head_dim + i;
                out[at] = T(A(out[at]) + A(skip(h)) * A(in[at]));
            });
        });
}
PENTAD_KERNEL(state_space_skip)

/// The gradient of the skip: sums of dy x over rows and over a head's elements.
/// @param sums scratch of at least [heads * head_dim]
template <class T, class Exec>
void state_space_skip_gradient(Exec const& exec, In<T, 2, Exec> x, In<T, 2, Exec> dy,
                               Out<accumulator_t<T>, 1, Exec> sums, Out<accumulator_t<T>, 1, Exec> dskip) {
    using A = accumulator_t<T>;
    if (dry("state_space_skip_gradient", x, dy, sums, dskip)) return;
    sum_over_rows<A>(
        "pentad::state_space_skip_gradient", exec, x.extent(0), x.extent(1),
        KOKKOS_LAMBDA(i64 r, int c) { return A(dy(r, c)) * A(x(r, c)); },
        KOKKOS_LAMBDA(int c, A total) { sums(c) = total; });
    i64 const head_dim = static_cast<i64>(x.extent(1) / dskip.extent(0));
    for_each_element(
        "pentad::state_space_skip_gradient", exec, dskip.extent(0), KOKKOS_LAMBDA(i64 h) {
            A total = 0;
            for (i64 i = 0; i < head_dim; ++i) total += sums(h * head_dim + i);
            dskip(h) = total;
        });
}
PENTAD_KERNEL(state_space_skip_gradient)

} // namespace pentad::kernels
