// What a rank sends in a product of distributed matrices, m x k and k x n, on grids of ranks.
#pragma once

namespace pentad::planner {

/// A product and the ranks along its rows, its columns and its summands.
struct ProductOnGrid {
    double m = 1, n = 1, k = 1;
    double rows = 1, columns = 1, inner = 1;
    double element_bytes = 8;

    [[nodiscard]] constexpr double ranks() const { return rows * columns * inner; }
};

/// SUMMA and Cannon, C where it is: a rank's row of A is gathered over the columns of the grid, its column of B over
/// the rows (van de Geijn and Watts 1997; Cannon 1969, who also skews). @pre of.inner == 1
constexpr double summa_bytes(ProductOnGrid const& of) {
    return of.element_bytes *
           (of.m * of.k / of.rows * (of.columns - 1) / of.columns + of.k * of.n / of.columns * (of.rows - 1) / of.rows);
}
/// The same on each of c layers, over k/c of the summands, and C summed over the layers and shared out among them
/// (Agarwal et al. 1995; Solomonik and Demmel 2011 replicate the factors first).
constexpr double layered_product_bytes(ProductOnGrid const& of) {
    ProductOnGrid layer = of;
    layer.k = of.k / of.inner;
    layer.inner = 1;
    return summa_bytes(layer) + of.element_bytes * of.m * of.n / (of.rows * of.columns) * (of.inner - 1) / of.inner;
}
/// Cannon's skew moves both factors before the first step where the blocks do not begin elsewhere: of all but the first
/// row of ranks a block of A, of all but the first column one of B; the mean. @pre of.rows == of.columns
constexpr double cannon_skew_bytes(ProductOnGrid const& of) {
    return of.element_bytes * (of.m * of.k + of.k * of.n) / of.ranks() * (of.rows - 1) / of.rows;
}

} // namespace pentad::planner
