// Products of small tiles that lie in cache, on one host thread: what attention on the host is made of.
// Blocks of C stay in registers while the inner dimension passes; close to the peak of the machine.
#pragma once

#include <pentad/kernels/detail/simd.hpp>
#include <pentad/layout/element.hpp>

#include <type_traits>

namespace pentad::kernels::detail {

// What is in registers at once: rows x vectors of C, a row of B and an element of A. 32 registers on AVX-512.
inline constexpr int block_rows = vector_bytes == 64 ? 6 : 4;
inline constexpr int block_vectors = vector_bytes == 64 ? 4 : 2;

/// What the product does with the C it finds.
enum class Into { empty, sum, scaled };

/// A tile seen as rows: element (row, d) is data[row * row_stride + d * depth_stride]. Its elements are read one by
/// one, so it may as well be transposed.
template <class T>
struct Scalars {
    T const* data;
    i64 row_stride;
    i64 depth_stride;
};

/// A tile whose rows are read and written as vectors.
template <class T>
struct TileRows {
    T* data;
    i64 stride;
};

template <Into into, int rows, int vectors, class T>
[[gnu::always_inline]] inline void product_block(Scalars<T> a, TileRows<T const> b, i64 depth, T const* scale,
                                                 TileRows<T> c) {
    constexpr int width = lanes<T>;
    Vector<T> sum[rows][vectors];
    PENTAD_UNROLL(16)
    for (int r = 0; r < rows; ++r) {
        PENTAD_UNROLL(16)
        for (int v = 0; v < vectors; ++v) {
            T const* const before = c.data + r * c.stride + v * width;
            if constexpr (into == Into::empty) sum[r][v] = Vector<T>{};
            if constexpr (into == Into::sum) sum[r][v] = load(before);
            if constexpr (into == Into::scaled) sum[r][v] = load(before) * load(scale + v * width);
        }
    }
    PENTAD_UNROLL(1)
    for (i64 d = 0; d < depth; ++d) {
        Vector<T> row[vectors];
        PENTAD_UNROLL(16)
        for (int v = 0; v < vectors; ++v) row[v] = load(b.data + v * width);
        PENTAD_UNROLL(16)
        for (int r = 0; r < rows; ++r) {
            Vector<T> const element = broadcast(a.data[r * a.row_stride]);
            PENTAD_UNROLL(16)
            for (int v = 0; v < vectors; ++v) sum[r][v] += element * row[v];
        }
        a.data += a.depth_stride;
        b.data += b.stride;
    }
    PENTAD_UNROLL(16)
    for (int r = 0; r < rows; ++r) {
        PENTAD_UNROLL(16)
        for (int v = 0; v < vectors; ++v) store(c.data + r * c.stride + v * width, sum[r][v]);
    }
}

template <Into into, int vectors, class T>
inline void product_strip(int rows, i64 depth, Scalars<T> a, TileRows<T const> b, T const* scale, TileRows<T> c) {
    int row = 0;
    auto const at = [&](int r) { return Scalars<T>{a.data + r * a.row_stride, a.row_stride, a.depth_stride}; };
    auto const to = [&](int r) { return TileRows<T>{c.data + r * c.stride, c.stride}; };
    for (; row + block_rows <= rows; row += block_rows)
        product_block<into, block_rows, vectors>(at(row), b, depth, scale, to(row));
    for (; row + 2 <= rows; row += 2) product_block<into, 2, vectors>(at(row), b, depth, scale, to(row));
    if (row < rows) product_block<into, 1, vectors>(at(row), b, depth, scale, to(row));
}

/// C[rows, columns] = A[rows, depth] B[depth, columns], where C is empty; or C + A B; or C scaled by column + A B.
/// `columns` is a multiple of the vector's lanes.
template <Into into, class T>
void tile_product(int rows, int columns, int depth, Scalars<T> a, TileRows<std::type_identity_t<T> const> b,
                  TileRows<std::type_identity_t<T>> c, std::type_identity_t<T> const* scale = nullptr) {
    constexpr int width = lanes<T>;
    int column = 0;
    auto const strip = [&]<int vectors>(std::integral_constant<int, vectors>) {
        for (; column + vectors * width <= columns; column += vectors * width)
            product_strip<into, vectors, T>(rows, depth, a, {b.data + column, b.stride},
                                            scale ? scale + column : nullptr, {c.data + column, c.stride});
    };
    strip(std::integral_constant<int, block_vectors>());
    if constexpr (block_vectors > 2) strip(std::integral_constant<int, 2>());
    strip(std::integral_constant<int, 1>());
}

} // namespace pentad::kernels::detail
