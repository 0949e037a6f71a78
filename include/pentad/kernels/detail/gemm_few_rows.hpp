// Products of a few rows with the rows of a matrix, C = alpha A B^T + beta C, which read B once, as it is: libraries
// copy it into an order of their own first, which takes longer than the product.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/detail/gemm_problem.hpp>
#include <pentad/kernels/detail/simd.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>

namespace pentad::kernels::detail {

/// Rows of A up to which such a product is faster than that of a library.
inline constexpr i64 few_rows = 16;

template <class T>
bool is_of_few_rows(GemmProblem<T, T> const& problem) {
    return problem.m <= few_rows && problem.transpose_b && !problem.transpose_a;
}

/// Products of `Rows` rows of A with `Columns` rows of B. The sums are in the same order whatever Rows and Columns are,
/// so that what a row gives does not depend on the rows beside it.
template <int Rows, int Columns, class T>
void few_rows_tile(GemmProblem<T, T> const& p, i64 row, i64 column) {
    Vector<T> sums[Rows][Columns] = {};
    T const* const a = p.a + row * p.a_stride;
    T const* const b = p.b + column * p.b_stride;
    i64 const whole = p.k / lanes<T> * lanes<T>;
    for (i64 i = 0; i < whole; i += lanes<T>) {
        Vector<T> of_a[Rows];
        PENTAD_UNROLL(8)
        for (int r = 0; r < Rows; ++r) of_a[r] = load(a + r * p.a_stride + i);
        PENTAD_UNROLL(8)
        for (int c = 0; c < Columns; ++c) {
            auto const of_b = load(b + c * p.b_stride + i);
            PENTAD_UNROLL(8)
            for (int r = 0; r < Rows; ++r) sums[r][c] += of_a[r] * of_b;
        }
    }
    for (int r = 0; r < Rows; ++r)
        for (int c = 0; c < Columns; ++c) {
            T sum = 0;
            for (int lane = 0; lane < lanes<T>; ++lane) sum += sums[r][c][lane];
            for (i64 i = whole; i < p.k; ++i) sum += a[r * p.a_stride + i] * b[c * p.b_stride + i];
            T& to = p.c[(row + r) * p.c_stride + column + c];
            T const scaled = static_cast<T>(p.alpha) * sum;
            to = p.beta == 0 ? scaled : scaled + static_cast<T>(p.beta) * to;
        }
}

/// All rows of A with `Columns` rows of B, which stay in the cache.
template <int Columns, class T>
void few_rows_block(GemmProblem<T, T> const& p, i64 column) {
    i64 row = 0;
    for (; row + 4 <= p.m; row += 4) few_rows_tile<4, Columns>(p, row, column);
    if (p.m - row == 3) few_rows_tile<3, Columns>(p, row, column);
    if (p.m - row == 2) few_rows_tile<2, Columns>(p, row, column);
    if (p.m - row == 1) few_rows_tile<1, Columns>(p, row, column);
}

/// The matrices are of f64 or f32, in the memory of the host.
template <class T, class Exec>
void gemm_few_rows(Exec const& exec, GemmProblem<T, T> const& p) {
    if constexpr (runs_on_host<Exec>) {
        constexpr int columns = vector_bytes == 64 ? 4 : 2; // 4 rows of these fill the registers
        constexpr int alone = 4 * columns;                  // of one row, which leaves registers to more columns
        i64 const step = p.m == 1 ? alone : columns;
        Kokkos::parallel_for("pentad::gemm_few_rows",
                             Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, (p.n + step - 1) / step),
                             [=](i64 block) {
                                 i64 const first = block * step, last = std::min(first + step, p.n);
                                 if (p.m == 1 && last - first == alone) return few_rows_tile<1, alone>(p, 0, first);
                                 i64 column = first;
                                 for (; column + columns <= last; column += columns) few_rows_block<columns>(p, column);
                                 for (; column < last; ++column) few_rows_block<1>(p, column);
                             });
    }
}
PENTAD_KERNEL_OF_ACCUMULATORS(gemm_few_rows)

} // namespace pentad::kernels::detail
