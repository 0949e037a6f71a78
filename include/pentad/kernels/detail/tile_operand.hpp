// What products of tiles multiply: numbers of the type they are summed in, or pairs of bf16, which CPUs with
// AVX512-BF16 multiply and add to f32 sums in one instruction, at twice the speed of f32.
#pragma once

#include <pentad/kernels/detail/simd.hpp>
#include <pentad/layout/element.hpp>

#include <cstdint>

#if defined(__AVX512BF16__) && !defined(__CUDACC__)
#define PENTAD_BF16_PAIRS
#include <immintrin.h>
#endif

namespace pentad::kernels::detail {

/// A product takes its operands in tiles of two kinds. Along: the depth of the product lies along rows, [rows, depth].
/// Across: rows follow each other along the depth, [depth, columns]. Where an operand is several elements, those follow
/// each other along the depth, so that such tiles are [rows, depth / 2] and [depth / 2, columns].
template <class T>
struct Operand {
    using Element = T;
    using Sum = T;
    static constexpr int depth = 1; ///< elements

    static Vector<T> all(T const* operand) { return broadcast(*operand); }
    /// sum + a b, lane by lane.
    static Vector<T> multiply_add(Vector<T> const& sum, Vector<T> const& a, Vector<T> const& b) { return sum + a * b; }
    /// A vector of a tile along.
    static Vector<T> load_along(T const* from) { return load(from); }
    /// As many vectors of a tile along as an operand has elements, `apart` operands from each other.
    static void store_along(T* to, i64, Vector<T> const (&numbers)[1]) { store(to, numbers[0]); }
    /// A vector of each of the rows that make one of a tile across.
    static void store_across(T* to, Vector<T> const (&rows)[1]) { store(to, rows[0]); }
};

/// Two bf16, the first in the low half.
struct Bf16Pair {
    std::uint32_t bits;
};

#if defined(PENTAD_BF16_PAIRS)

template <>
struct VectorOf<Bf16Pair> {
    typedef std::uint32_t type __attribute__((vector_size(vector_bytes)));
};

template <>
struct Operand<Bf16Pair> {
    using Element = bf16;
    using Sum = f32;
    using Pairs = Vector<Bf16Pair>;
    static constexpr int depth = 2;

    static Pairs all(Bf16Pair const* operand) {
        std::uint32_t bits; // tiles are written as bf16 or as vectors
        __builtin_memcpy(&bits, operand, sizeof bits);
        return bits - Pairs{};
    }
    static Vector<f32> multiply_add(Vector<f32> const& sum, Pairs const& a, Pairs const& b) {
        return (Vector<f32>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
    }
    static Vector<f32> load_along(Bf16Pair const* from) {
        __m256i bits;
        __builtin_memcpy(&bits, from, sizeof bits);
        return (Vector<f32>)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
    }
    static void store_along(Bf16Pair* to, i64 apart, Vector<f32> const (&numbers)[2]) {
        auto const both = rounded(numbers);
        auto const first = _mm512_castsi512_si256(both), second = _mm512_extracti64x4_epi64(both, 1);
        __builtin_memcpy(to, &first, sizeof first);
        __builtin_memcpy(to + apart, &second, sizeof second);
    }
    static void store_across(Bf16Pair* to, Vector<f32> const (&rows)[2]) {
        store(to, (Pairs)_mm512_permutexvar_epi16((__m512i)alternating, rounded(rows)));
    }
    /// The pairs of two rows' elements, 2 * lanes of them.
    static void interleave(Pairs const& first, Pairs const& second, Bf16Pair* to) {
        Pairs const even = (first & 0xffffu) | (second << 16);
        Pairs const odd = (first >> 16) | (second & 0xffff0000u);
        store(to, (Pairs)__builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
        store(to + lanes<Bf16Pair>,
              (Pairs)__builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
    }

  private:
    /// All of the first vector, then all of the second.
    static __m512i rounded(Vector<f32> const (&numbers)[2]) {
        return (__m512i)_mm512_cvtne2ps_pbh((__m512)numbers[1], (__m512)numbers[0]);
    }
    typedef std::uint16_t Indices __attribute__((vector_size(vector_bytes)));
    static constexpr Indices alternating = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                            8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
};

#endif

/// What products of tiles take for elements T: what the CPU multiplies fastest.
template <class T>
struct OperandOf {
    using type = accumulator_t<T>;
};
#if defined(PENTAD_BF16_PAIRS)
template <>
struct OperandOf<bf16> {
    using type = Bf16Pair;
};
#endif
template <class T>
using operand_t = typename OperandOf<T>::type;

template <class In>
inline constexpr int depth_of = Operand<In>::depth;
template <class In>
using sum_of = typename Operand<In>::Sum;

/// Operands that so many elements take along the depth, and the elements of those.
template <class In>
constexpr int operands(i64 elements) {
    return static_cast<int>((elements + depth_of<In> - 1) / depth_of<In>);
}
template <class In>
constexpr int whole_operands(i64 elements) {
    return operands<In>(elements) * depth_of<In>;
}

/// A tile of numbers [rows, columns] as a tile along, and as one across. Both sizes are whole operands.
template <class In>
void to_along(sum_of<In> const* from, int rows, int columns, In* to) {
    constexpr int depth = depth_of<In>, width = lanes<In>;
    for (int i = 0; i < rows * columns; i += depth * width) {
        Vector<sum_of<In>> numbers[depth];
        for (int v = 0; v < depth; ++v) numbers[v] = load(from + i + v * width);
        Operand<In>::store_along(to + i / depth, width / depth, numbers);
    }
}
template <class In>
void to_across(sum_of<In> const* from, int rows, int columns, In* to) {
    for (int row = 0; row < rows; row += depth_of<In>)
        for (int column = 0; column < columns; column += lanes<In>) {
            Vector<sum_of<In>> numbers[depth_of<In>];
            for (int i = 0; i < depth_of<In>; ++i) numbers[i] = load(from + (row + i) * columns + column);
            Operand<In>::store_across(to + row / depth_of<In> * columns + column, numbers);
        }
}

/// A tile along, [rows, columns], as the tile across whose depth are the rows. Both sizes are whole operands. Where an
/// operand is one element they are the same tile, and nothing is done.
template <class In>
void turn_depth(In const* along, int rows, int columns, In* across) {
    if constexpr (depth_of<In> > 1) {
        for (int row = 0; row < rows; row += 2)
            for (int column = 0; column < columns; column += 2 * lanes<In>)
                Operand<In>::interleave(load(along + (row * columns + column) / 2),
                                        load(along + ((row + 1) * columns + column) / 2),
                                        across + row / 2 * columns + column);
    }
}

} // namespace pentad::kernels::detail
