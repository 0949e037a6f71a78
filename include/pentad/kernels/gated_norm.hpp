// RMSNorm with a gate in front of it or behind it, over groups of neighbouring columns. Where ranks share a group its
// sums are partial, and reduced between the two passes.
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/rows.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::kernels {

// n = u / sqrt(mean(u^2) + epsilon) * weight * v, where a gate g makes u of y, and v: each with their derivatives.
// Shapes, throughout: y, gate, n and their gradients are [rows, width]; squares and dots [rows, groups], of sums over
// this rank's columns of a group; `columns` are those of a group on all ranks together.

/// u = y silu(g), v = 1 (MambaRMSNormGated of transformers; Dao and Gu 2024, section 7). In all, s = sigmoid(g).
struct GateBeforeNorm {
    template <class A>
    static KOKKOS_FORCEINLINE_FUNCTION A u(A y, A g, A s) {
        return y * (g * s);
    }
    template <class A>
    static KOKKOS_FORCEINLINE_FUNCTION A v(A) {
        return A(1);
    }
    /// From du and dv, dy and dg.
    template <class A>
    static KOKKOS_FORCEINLINE_FUNCTION void back(A y, A g, A s, A du, A, A& dy, A& dg) {
        dy = du * g * s;
        dg = du * y * s * (A(1) + g * (A(1) - s));
    }
};
/// u = y, v = sigmoid(g) (MiniMax 2025, arXiv 2501.08313, section 2.2; MiniMaxLightningAttention of transformers).
struct GateAfterNorm {
    template <class A>
    static KOKKOS_FORCEINLINE_FUNCTION A u(A y, A, A) {
        return y;
    }
    template <class A>
    static KOKKOS_FORCEINLINE_FUNCTION A v(A s) {
        return s;
    }
    template <class A>
    static KOKKOS_FORCEINLINE_FUNCTION void back(A, A, A s, A du, A dv, A& dy, A& dg) {
        dy = du;
        dg = dv * s * (A(1) - s);
    }
};

/// squares = sums of u^2.
template <class Gate, class T, class Exec>
void gated_norm_squares(Exec const& exec, In<T, 2, Exec> y, In<T, 2, Exec> gate,
                        Out<accumulator_t<T>, 2, Exec> squares) {
    using A = accumulator_t<T>;
    detail::require_same_shape("gated_norm_squares", "gate", gate, "y", y);
    if (dry("gated_norm_squares", y, gate, squares)) return;
    int const groups = static_cast<int>(squares.extent(1)), width = static_cast<int>(y.extent(1)) / groups;
    for_each_row(
        "pentad::gated_norm_squares", exec, y.extent(0), y.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(y);
            T const* const g = row.of(gate);
            for (int group = 0; group < groups; ++group) {
                int const first = group * width;
                A const total = row.template sum<A>(width, [&](int i) {
                    A const open = A(g[first + i]), u = Gate::u(A(in[first + i]), open, math::sigmoid(open));
                    return u * u;
                });
                row.once([&] { squares(row.index(), group) = total; });
            }
        });
}
PENTAD_KERNEL(gated_norm_squares, GateAfterNorm)
PENTAD_KERNEL(gated_norm_squares, GateBeforeNorm)

template <class Gate, class T, class Exec>
void gated_norm_forward(Exec const& exec, In<T, 2, Exec> y, In<T, 2, Exec> gate, In<accumulator_t<T>, 2, Exec> squares,
                        In<T, 1, Exec> weight, accumulator_t<T> epsilon, std::size_t columns, Out<T, 2, Exec> n) {
    using A = accumulator_t<T>;
    detail::require_same_shape("gated_norm_forward", "gate", gate, "y", y);
    detail::require_same_shape("gated_norm_forward", "n", n, "y", y);
    detail::require_extent("gated_norm_forward", "weight", weight.extent(0), y.extent(1), "columns of y");
    if (dry("gated_norm_forward", y, gate, squares, weight, n)) return;
    int const groups = static_cast<int>(squares.extent(1)), width = static_cast<int>(y.extent(1)) / groups;
    A const count = static_cast<A>(columns);
    for_each_row(
        "pentad::gated_norm_forward", exec, y.extent(0), y.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(y);
            T const* const g = row.of(gate);
            T const* const w = weight.data();
            T* const out = row.of(n);
            for (int group = 0; group < groups; ++group) {
                A const mean = squares(row.index(), group) / count;
                A const scale = A(1) / Kokkos::sqrt(mean + epsilon) + (mean - mean); // NaN where squares overflow
                int const first = group * width;
                row.each(width, [&](int i) {
                    int const at = first + i;
                    A const open = A(g[at]), s = math::sigmoid(open);
                    out[at] = T(A(w[at]) * (Gate::u(A(in[at]), open, s) * scale * Gate::v(s)));
                });
            }
        });
}
PENTAD_KERNEL(gated_norm_forward, GateAfterNorm)
PENTAD_KERNEL(gated_norm_forward, GateBeforeNorm)

/// dots = sums of dn weight v u.
template <class Gate, class T, class Exec>
void gated_norm_dots(Exec const& exec, In<T, 2, Exec> dn, In<T, 2, Exec> y, In<T, 2, Exec> gate, In<T, 1, Exec> weight,
                     Out<accumulator_t<T>, 2, Exec> dots) {
    using A = accumulator_t<T>;
    detail::require_same_shape("gated_norm_dots", "dn", dn, "y", y);
    if (dry("gated_norm_dots", dn, y, gate, weight, dots)) return;
    int const groups = static_cast<int>(dots.extent(1)), width = static_cast<int>(y.extent(1)) / groups;
    for_each_row(
        "pentad::gated_norm_dots", exec, y.extent(0), y.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const d = row.of(dn);
            T const* const in = row.of(y);
            T const* const g = row.of(gate);
            T const* const w = weight.data();
            for (int group = 0; group < groups; ++group) {
                int const first = group * width;
                A const total = row.template sum<A>(width, [&](int i) {
                    int const at = first + i;
                    A const open = A(g[at]), s = math::sigmoid(open);
                    return A(d[at]) * A(w[at]) * Gate::v(s) * Gate::u(A(in[at]), open, s);
                });
                row.once([&] { dots(row.index(), group) = total; });
            }
        });
}
PENTAD_KERNEL(gated_norm_dots, GateAfterNorm)
PENTAD_KERNEL(gated_norm_dots, GateBeforeNorm)

/// The gradients of y and of the gate; dy may be dn, dgate may be gate.
template <class Gate, class T, class Exec>
void gated_norm_backward(Exec const& exec, In<T, 2, Exec> dn, In<T, 2, Exec> y, In<T, 2, Exec> gate,
                         In<accumulator_t<T>, 2, Exec> squares, In<accumulator_t<T>, 2, Exec> dots,
                         In<T, 1, Exec> weight, accumulator_t<T> epsilon, std::size_t columns, Out<T, 2, Exec> dy,
                         Out<T, 2, Exec> dgate) {
    using A = accumulator_t<T>;
    detail::require_same_shape("gated_norm_backward", "dn", dn, "y", y);
    detail::require_same_shape("gated_norm_backward", "dy", dy, "y", y);
    detail::require_same_shape("gated_norm_backward", "dgate", dgate, "y", y);
    if (dry("gated_norm_backward", dn, y, gate, squares, dots, weight, dy, dgate)) return;
    int const groups = static_cast<int>(squares.extent(1)), width = static_cast<int>(y.extent(1)) / groups;
    A const count = static_cast<A>(columns);
    for_each_row(
        "pentad::gated_norm_backward", exec, y.extent(0), y.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const d = row.of(dn);
            T const* const in = row.of(y);
            T const* const g = row.of(gate);
            T const* const w = weight.data();
            T* const to = row.of(dy);
            T* const to_gate = row.of(dgate);
            for (int group = 0; group < groups; ++group) {
                A const scale = A(1) / Kokkos::sqrt(squares(row.index(), group) / count + epsilon);
                A const pull = dots(row.index(), group) * scale * scale / count;
                int const first = group * width;
                row.each(width, [&](int i) {
                    int const at = first + i;
                    A const value = A(in[at]), open = A(g[at]), s = math::sigmoid(open);
                    A const u = Gate::u(value, open, s), v = Gate::v(s);
                    A const upstream = A(d[at]) * A(w[at]);
                    A to_y, to_g;
                    Gate::back(value, open, s, scale * (upstream * v - u * pull), upstream * u * scale, to_y, to_g);
                    to[at] = T(to_y);
                    to_gate[at] = T(to_g);
                });
            }
        });
}
PENTAD_KERNEL(gated_norm_backward, GateAfterNorm)
PENTAD_KERNEL(gated_norm_backward, GateBeforeNorm)

/// The gradient of the weight, which is written.
template <class Gate, class T, class Exec>
void gated_norm_backward_weight(Exec const& exec, In<T, 2, Exec> dn, In<T, 2, Exec> y, In<T, 2, Exec> gate,
                                In<accumulator_t<T>, 2, Exec> squares, accumulator_t<T> epsilon, std::size_t columns,
                                Out<accumulator_t<T>, 1, Exec> dweight) {
    using A = accumulator_t<T>;
    if (dry("gated_norm_backward_weight", dn, y, gate, squares, dweight)) return;
    int const groups = static_cast<int>(squares.extent(1)), width = static_cast<int>(y.extent(1)) / groups;
    A const count = static_cast<A>(columns);
    for (int group = 0; group < groups; ++group) { // each by itself, so that a row has one scale
        int const first = group * width;
        sum_over_rows<A>(
            "pentad::gated_norm_backward_weight", exec, y.extent(0), static_cast<std::size_t>(width),
            KOKKOS_LAMBDA(i64 r, int i) {
                int const c = first + i;
                A const scale = A(1) / math::root(squares(r, group) / count + epsilon);
                A const open = A(gate(r, c)), s = math::sigmoid(open);
                return A(dn(r, c)) * Gate::u(A(y(r, c)), open, s) * Gate::v(s) * scale;
            },
            KOKKOS_LAMBDA(int i, A total) { dweight(first + i) = total; });
    }
}
PENTAD_KERNEL(gated_norm_backward_weight, GateAfterNorm)
PENTAD_KERNEL(gated_norm_backward_weight, GateBeforeNorm)

} // namespace pentad::kernels
