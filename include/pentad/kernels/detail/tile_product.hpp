// Products of small tiles that lie in cache, on one host thread: what attention on the host is made of.
// Blocks of C stay in registers while the inner dimension passes; close to the peak of the machine.
#pragma once

#include <pentad/kernels/detail/simd.hpp>
#include <pentad/kernels/detail/tile_operand.hpp>
#include <pentad/layout/element.hpp>

#include <type_traits>

namespace pentad::kernels::detail {

// What is in registers at once: rows x vectors of C, a row of B and an element of A. 32 registers on AVX-512.
inline constexpr int block_rows = vector_bytes == 64 ? 6 : 4;
inline constexpr int block_vectors = vector_bytes == 64 ? 4 : 2;

/// What the product does with the C it finds.
enum class Into { empty, sum, scaled };

/// A tile seen as rows: operand (row, d) is data[row * row_stride + d * depth_stride]. They are read one by one, so
/// that it may as well be transposed.
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

template <Into into, int rows, int vectors, class In, class Sum>
[[gnu::always_inline]] inline void product_block(Scalars<In> a, TileRows<In const> b, i64 depth, Sum const* scale,
                                                 TileRows<Sum> c) {
    constexpr int width = lanes<Sum>;
    Vector<Sum> sum[rows][vectors];
    PENTAD_UNROLL(16)
    for (int r = 0; r < rows; ++r) {
        PENTAD_UNROLL(16)
        for (int v = 0; v < vectors; ++v) {
            Sum const* const before = c.data + r * c.stride + v * width;
            if constexpr (into == Into::empty) sum[r][v] = Vector<Sum>{};
            if constexpr (into == Into::sum) sum[r][v] = load(before);
            if constexpr (into == Into::scaled) sum[r][v] = load(before) * load(scale + v * width);
        }
    }
    PENTAD_UNROLL(1)
    for (i64 d = 0; d < depth; ++d) {
        Vector<In> row[vectors];
        PENTAD_UNROLL(16)
        for (int v = 0; v < vectors; ++v) row[v] = load(b.data + v * width);
        PENTAD_UNROLL(16)
        for (int r = 0; r < rows; ++r) {
            Vector<In> const operand = Operand<In>::all(a.data + r * a.row_stride);
            PENTAD_UNROLL(16)
            for (int v = 0; v < vectors; ++v) sum[r][v] = Operand<In>::multiply_add(sum[r][v], operand, row[v]);
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

template <Into into, int vectors, class In, class Sum>
inline void product_strip(int rows, i64 depth, Scalars<In> a, TileRows<In const> b, Sum const* scale, TileRows<Sum> c) {
    int row = 0;
    auto const at = [&](int r) { return Scalars<In>{a.data + r * a.row_stride, a.row_stride, a.depth_stride}; };
    auto const to = [&](int r) { return TileRows<Sum>{c.data + r * c.stride, c.stride}; };
    for (; row + block_rows <= rows; row += block_rows)
        product_block<into, block_rows, vectors>(at(row), b, depth, scale, to(row));
    constexpr int fewer = block_rows == 6 ? 4 : 2; // a tile of 64 rows ends with them
    for (; row + fewer <= rows; row += fewer) product_block<into, fewer, vectors>(at(row), b, depth, scale, to(row));
    for (; row < rows; ++row) product_block<into, 1, vectors>(at(row), b, depth, scale, to(row));
}

/// C[rows, columns] = A[rows, depth] B[depth, columns], where C is empty; or C + A B; or C scaled by column + A B.
/// `columns` is a multiple of the vector's lanes; `depth` and the strides count operands.
template <Into into, class In>
void tile_product(int rows, int columns, int depth, Scalars<In> a, TileRows<std::type_identity_t<In> const> b,
                  TileRows<sum_of<In>> c, sum_of<In> const* scale = nullptr) {
    constexpr int width = lanes<In>;
    int column = 0;
    auto const strip = [&]<int vectors>(std::integral_constant<int, vectors>) {
        for (; column + vectors * width <= columns; column += vectors * width)
            product_strip<into, vectors>(rows, depth, a, TileRows<In const>{b.data + column, b.stride},
                                         scale ? scale + column : nullptr,
                                         TileRows<sum_of<In>>{c.data + column, c.stride});
    };
    strip(std::integral_constant<int, block_vectors>());
    if constexpr (block_vectors > 2) strip(std::integral_constant<int, 2>());
    strip(std::integral_constant<int, 1>());
}

} // namespace pentad::kernels::detail
