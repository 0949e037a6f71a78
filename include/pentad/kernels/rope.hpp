// Rotary position embedding. In the Hugging Face Llama convention element i of a head turns together with element
// i + head_dim / 2, by position * frequency i; interleaved (GPT-J, DeepSeek), element 2 i with 2 i + 1. In place, on
// slices of a fused qkv buffer too.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

#include <stdexcept>
#include <string>

namespace pentad::kernels {

/// Cosines and sines for any position: position p turns by row p / n of the coarse tables, whose rows are n positions
/// apart, and by row p % n of the n fine ones. All are [rows, head_dim / 2].
template <class A, class Exec>
struct RotaryTables {
    In<A, 2, Exec> fine_cosine, fine_sine, coarse_cosine, coarse_sine;
};

/// Which elements of heads are turned: of each, twice the width of the tables.
struct RotaryHeads {
    std::size_t width = 0; ///< of a head; 0: all elements are turned
    std::size_t first = 0; ///< that is turned, of a head
    bool is_interleaved = false;
};

/// Fills cosine and sine [rows, head_dim / 2] for positions 0, step, 2 step, ...; frequencies [head_dim / 2] are angles
/// from one position to the next. The angles are formed in f64: in f32 a position of 10^5 would leave three digits of
/// the fastest ones.
/// @param amplitude of all cosines and sines
template <class A, class Exec>
void rope_tables(Exec const& exec, i64 step, In<f64, 1, Exec> frequencies, Out<A, 2, Exec> cosine, Out<A, 2, Exec> sine,
                 f64 amplitude = 1) {
    detail::require_extent("rope_tables", "frequencies", frequencies.extent(0), cosine.extent(1), "columns of cosine");
    detail::require_same_shape("rope_tables", "sine", sine, "cosine", cosine);
    int const half = static_cast<int>(cosine.extent(1));
    if (dry("rope_tables", frequencies, cosine, sine)) return;
    for_each_row(
        "pentad::rope_tables", exec, cosine.extent(0), half, KOKKOS_LAMBDA(Row<Exec> const& row) {
            f64 const position = static_cast<f64>(step * row.index());
            A* const c = row.of(cosine);
            A* const s = row.of(sine);
            row.each(half, [&](int i) {
                f64 const angle = position * frequencies(i);
                c[i] = static_cast<A>(amplitude * Kokkos::cos(angle));
                s[i] = static_cast<A>(amplitude * Kokkos::sin(angle));
            });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(rope_tables)

namespace detail {

/// How far apart the elements of a pair are, and pairs, is known when this is compiled where that is 1.
template <bool interleaved, class T, class Exec>
void rotate(char const* label, Exec const& exec, Out<T, 2, Exec> x, In<i32, 1, Exec> positions,
            RotaryTables<accumulator_t<T>, Exec> const& tables, RotaryHeads const& of_heads,
            accumulator_t<T> direction) {
    using A = accumulator_t<T>;
    auto const &fine_cosine = tables.fine_cosine, &fine_sine = tables.fine_sine;
    auto const &coarse_cosine = tables.coarse_cosine, &coarse_sine = tables.coarse_sine;
    require_same_shape(label, "fine_sine", fine_sine, "fine_cosine", fine_cosine);
    require_same_shape(label, "coarse_sine", coarse_sine, "coarse_cosine", coarse_cosine);
    int const half = static_cast<int>(fine_cosine.extent(1));
    i64 const fine = static_cast<i64>(fine_cosine.extent(0)), rows = static_cast<i64>(positions.extent(0));
    if (x.extent(0) == 0 || x.extent(1) == 0) return;
    int const first = static_cast<int>(of_heads.first);
    int const width = of_heads.width == 0 ? first + 2 * half : static_cast<int>(of_heads.width);
    if (half == 0 || width < first + 2 * half || x.extent(1) % width != 0 || rows == 0 || x.extent(0) % rows != 0)
        throw std::invalid_argument(std::string(label) + ": x is [" + std::to_string(x.extent(0)) + ", " +
                                    std::to_string(x.extent(1)) + "], it must be [n * " + std::to_string(rows) +
                                    ", heads * " + std::to_string(width) + "] for " + std::to_string(rows) +
                                    " positions and tables of " + std::to_string(half) + " columns");
    if (dry(label, x, x, positions)) return;
    int const heads = static_cast<int>(x.extent(1)) / width;
    constexpr int step = interleaved ? 2 : 1;
    int const apart = interleaved ? 1 : half;
    for_each_row(
        label, exec, x.extent(0), x.extent(1) / 2, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T* const values = row.of(x);
            i64 const position = positions(row.index() % rows);
            A const* const fine_c = row_of(fine_cosine, position % fine);
            A const* const fine_s = row_of(fine_sine, position % fine);
            A const* const coarse_c = row_of(coarse_cosine, position / fine);
            A const* const coarse_s = row_of(coarse_sine, position / fine);
            row.each(heads, half, [&](int head, int i) {
                T* const low = values + head * width + first;
                T* const high = low + apart;
                A const cosine = coarse_c[i] * fine_c[i] - coarse_s[i] * fine_s[i];
                A const sine = direction * (coarse_s[i] * fine_c[i] + coarse_c[i] * fine_s[i]);
                A const a = A(low[step * i]), b = A(high[step * i]);
                low[step * i] = T(a * cosine - b * sine);
                high[step * i] = T(b * cosine + a * sine);
            });
        });
}
template <class T, class Exec>
void rotate(char const* label, Exec const& exec, Out<T, 2, Exec> x, In<i32, 1, Exec> positions,
            RotaryTables<accumulator_t<T>, Exec> const& tables, RotaryHeads const& heads, accumulator_t<T> direction) {
    if (heads.is_interleaved)
        rotate<true, T>(label, exec, x, positions, tables, heads, direction);
    else
        rotate<false, T>(label, exec, x, positions, tables, heads, direction);
}

} // namespace detail

/// Turns every head of x [n * rows, heads * head_dim] in place: row r of x is at positions[r % rows], which is below
/// the product of the tables' rows.
template <class T, class Exec>
void rope_forward(Exec const& exec, Out<T, 2, Exec> x, In<i32, 1, Exec> positions,
                  RotaryTables<accumulator_t<T>, Exec> const& tables, RotaryHeads const& heads = {}) {
    detail::rotate<T>("pentad::rope_forward", exec, x, positions, tables, heads, accumulator_t<T>(1));
}
PENTAD_KERNEL(rope_forward)

/// Turns the gradient back, in place: a rotation's adjoint is its inverse.
template <class T, class Exec>
void rope_backward(Exec const& exec, Out<T, 2, Exec> dx, In<i32, 1, Exec> positions,
                   RotaryTables<accumulator_t<T>, Exec> const& tables, RotaryHeads const& heads = {}) {
    detail::rotate<T>("pentad::rope_backward", exec, dx, positions, tables, heads, accumulator_t<T>(-1));
}
PENTAD_KERNEL(rope_backward)

} // namespace pentad::kernels
