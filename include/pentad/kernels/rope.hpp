// Rotary position embedding in the Hugging Face Llama convention: element i of a head turns together
// with element i + head_dim / 2, by position * frequency i. In place, on slices of a fused qkv buffer too.
#pragma once

#include <pentad/kernels/rows.hpp>

#include <stdexcept>
#include <string>

namespace pentad::kernels {

/// Fills the tables [seq, head_dim / 2] for the global positions of the local sequence; frequencies [head_dim / 2] are
/// angles from one position to the next. The angles are formed in f64: in f32 a position of 10^5 would leave three
/// digits of the fastest ones.
template <class A, class Exec>
void rope_tables(Exec const& exec, In<i64, 1, Exec> positions, In<f64, 1, Exec> frequencies, Out<A, 2, Exec> cosine,
                 Out<A, 2, Exec> sine) {
    detail::require_extent("rope_tables", "frequencies", frequencies.extent(0), cosine.extent(1), "columns of cosine");
    detail::require_extent("rope_tables", "cosine, dimension 0,", cosine.extent(0), positions.extent(0), "positions");
    detail::require_same_shape("rope_tables", "sine", sine, "cosine", cosine);
    int const half = static_cast<int>(cosine.extent(1));
    if (dry("rope_tables", positions, frequencies, cosine, sine)) return;
    for_each_row(
        "pentad::rope_tables", exec, cosine.extent(0), half, KOKKOS_LAMBDA(Row<Exec> const& row) {
            f64 const position = static_cast<f64>(positions(row.index()));
            A* const c = row.of(cosine);
            A* const s = row.of(sine);
            row.each(half, [&](int i) {
                f64 const angle = position * frequencies(i);
                c[i] = static_cast<A>(Kokkos::cos(angle));
                s[i] = static_cast<A>(Kokkos::sin(angle));
            });
        });
}

namespace detail {

template <class T, class Exec>
void rotate(char const* label, Exec const& exec, Out<T, 2, Exec> x, In<accumulator_t<T>, 2, Exec> cosine,
            In<accumulator_t<T>, 2, Exec> sine, accumulator_t<T> direction) {
    using A = accumulator_t<T>;
    require_same_shape(label, "sine", sine, "cosine", cosine);
    int const half = static_cast<int>(cosine.extent(1));
    i64 const seq = static_cast<i64>(cosine.extent(0));
    if (x.extent(0) == 0 || x.extent(1) == 0) return;
    if (half == 0 || x.extent(1) % (2 * half) != 0 || seq == 0 || x.extent(0) % seq != 0)
        throw std::invalid_argument(std::string(label) + ": x is [" + std::to_string(x.extent(0)) + ", " +
                                    std::to_string(x.extent(1)) + "], it must be [batch * " + std::to_string(seq) +
                                    ", heads * " + std::to_string(2 * half) + "] for tables of [" +
                                    std::to_string(seq) + ", " + std::to_string(half) + "]");
    if (dry(label, x, x, cosine, sine)) return;
    int const heads = static_cast<int>(x.extent(1)) / (2 * half);
    for_each_row(
        label, exec, x.extent(0), x.extent(1) / 2, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T* const values = row.of(x);
            i64 const at = row.index() % seq;
            A const* const c = row_of(cosine, at);
            A const* const s = row_of(sine, at);
            row.each(heads, half, [&](int head, int i) {
                T* const low = values + head * 2 * half;
                T* const high = low + half;
                A const a = A(low[i]), b = A(high[i]), sn = direction * s[i];
                low[i] = T(a * c[i] - b * sn);
                high[i] = T(b * c[i] + a * sn);
            });
        });
}

} // namespace detail

/// Turns every head of x [batch * seq, heads * head_dim] in place; head_dim is twice the tables' width.
template <class T, class Exec>
void rope_forward(Exec const& exec, Out<T, 2, Exec> x, In<accumulator_t<T>, 2, Exec> cosine,
                  In<accumulator_t<T>, 2, Exec> sine) {
    detail::rotate<T>("pentad::rope_forward", exec, x, cosine, sine, accumulator_t<T>(1));
}

/// Turns the gradient back, in place: a rotation's adjoint is its inverse.
template <class T, class Exec>
void rope_backward(Exec const& exec, Out<T, 2, Exec> dx, In<accumulator_t<T>, 2, Exec> cosine,
                   In<accumulator_t<T>, 2, Exec> sine) {
    detail::rotate<T>("pentad::rope_backward", exec, dx, cosine, sine, accumulator_t<T>(-1));
}

} // namespace pentad::kernels
