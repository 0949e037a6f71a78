// Activations, forward and backward: SwiGLU (silu(gate) * up), GELU and SiLU. Rows
// may be column ranges of a wider buffer, so that gate and up can be the halves of one matrix product's output.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// y = silu(gate) * up.
template <class T, class Exec>
void swiglu_forward(Exec const& exec, In<T, 2, Exec> gate, In<T, 2, Exec> up, Out<T, 2, Exec> y) {
    using A = accumulator_t<T>;
    int const ffn = static_cast<int>(y.extent(1));
    detail::require_same_shape("swiglu_forward", "gate", gate, "y", y);
    detail::require_same_shape("swiglu_forward", "up", up, "y", y);
    if (dry("swiglu_forward", gate, up, y)) return;
    for_each_row(
        "pentad::swiglu_forward", exec, y.extent(0), ffn, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const g = row.of(gate);
            T const* const u = row.of(up);
            T* const out = row.of(y);
            row.each(ffn, [&](int i) { out[i] = T(math::silu(A(g[i])) * A(u[i])); });
        });
}
PENTAD_KERNEL(swiglu_forward)

/// dgate = dy * up * silu'(gate), dup = dy * silu(gate). dgate may be gate, and dup may be up.
template <class T, class Exec>
void swiglu_backward(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> gate, In<T, 2, Exec> up, Out<T, 2, Exec> dgate,
                     Out<T, 2, Exec> dup) {
    using A = accumulator_t<T>;
    int const ffn = static_cast<int>(dy.extent(1));
    detail::require_same_shape("swiglu_backward", "gate", gate, "dy", dy);
    detail::require_same_shape("swiglu_backward", "up", up, "dy", dy);
    detail::require_same_shape("swiglu_backward", "dgate", dgate, "dy", dy);
    detail::require_same_shape("swiglu_backward", "dup", dup, "dy", dy);
    if (dry("swiglu_backward", dy, gate, up, dgate, dup)) return;
    for_each_row(
        "pentad::swiglu_backward", exec, dy.extent(0), ffn, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const d = row.of(dy);
            T const* const g = row.of(gate);
            T const* const u = row.of(up);
            T* const dg = row.of(dgate);
            T* const du = row.of(dup);
            row.each(ffn, [&](int i) {
                A const gradient = A(d[i]), x = A(g[i]), s = math::sigmoid(x), through = gradient * s;
                dg[i] = T(through * A(u[i]) * (A(1) + x * (A(1) - s)));
                du[i] = T(through * x);
            });
        });
}
PENTAD_KERNEL(swiglu_backward)

/// y = gelu(x), the exact form; y may be x.
template <class T, class Exec>
void gelu_forward(Exec const& exec, In<T, 2, Exec> x, Out<T, 2, Exec> y) {
    using A = accumulator_t<T>;
    int const ffn = static_cast<int>(x.extent(1));
    detail::require_same_shape("gelu_forward", "y", y, "x", x);
    if (dry("gelu_forward", x, y)) return;
    for_each_row(
        "pentad::gelu_forward", exec, x.extent(0), ffn, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T* const out = row.of(y);
            row.each(ffn, [&](int i) { out[i] = T(math::gelu(A(in[i]))); });
        });
}
PENTAD_KERNEL(gelu_forward)

/// dx = dy * gelu'(x); dx may be dy or x.
template <class T, class Exec>
void gelu_backward(Exec const& exec, In<T, 2, Exec> dy, In<T, 2, Exec> x, Out<T, 2, Exec> dx) {
    using A = accumulator_t<T>;
    int const ffn = static_cast<int>(x.extent(1));
    detail::require_same_shape("gelu_backward", "dy", dy, "x", x);
    detail::require_same_shape("gelu_backward", "dx", dx, "x", x);
    if (dry("gelu_backward", dy, x, dx)) return;
    for_each_row(
        "pentad::gelu_backward", exec, x.extent(0), ffn, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T const* const d = row.of(dy);
            T* const out = row.of(dx);
            row.each(ffn, [&](int i) { out[i] = T(A(d[i]) * math::gelu_derivative(A(in[i]))); });
        });
}
PENTAD_KERNEL(gelu_backward)

/// y = silu(x); y may be x.
template <class T, class Exec>
void silu_forward(Exec const& exec, In<T, 2, Exec> x, Out<T, 2, Exec> y) {
    using A = accumulator_t<T>;
    int const width = static_cast<int>(x.extent(1));
    detail::require_same_shape("silu_forward", "y", y, "x", x);
    if (dry("silu_forward", x, y)) return;
    for_each_row(
        "pentad::silu_forward", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            T* const out = row.of(y);
            row.each(width, [&](int i) { out[i] = T(math::silu(A(in[i]))); });
        });
}
PENTAD_KERNEL(silu_forward)

/// dx = dy * silu'(x), dy in accumulators; dx may be x.
template <class T, class Exec>
void silu_backward(Exec const& exec, In<accumulator_t<T>, 2, Exec> dy, In<T, 2, Exec> x, Out<T, 2, Exec> dx) {
    using A = accumulator_t<T>;
    int const width = static_cast<int>(x.extent(1));
    detail::require_same_shape("silu_backward", "dy", dy, "x", x);
    detail::require_same_shape("silu_backward", "dx", dx, "x", x);
    if (dry("silu_backward", dy, x, dx)) return;
    for_each_row(
        "pentad::silu_backward", exec, x.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(x);
            A const* const d = row.of(dy);
            T* const out = row.of(dx);
            row.each(width, [&](int i) {
                A const value = A(in[i]), s = math::sigmoid(value);
                out[i] = T(d[i] * s * (A(1) + value * (A(1) - s)));
            });
        });
}
PENTAD_KERNEL(silu_backward)

} // namespace pentad::kernels
