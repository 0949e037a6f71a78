// What a linear map sends in tensor parallelism on a grid: of tokens x in times in x out.
#pragma once

#include <formulas/products.hpp>

#include <algorithm>

namespace pentad::planner {

/// The map, and the grid of rows x columns ranks, `depth` times.
struct GridMapSizes {
    double tokens = 1, in = 1, out = 1;
    double rows = 1, columns = 1, depth = 1;
    double element_bytes = 8;
};

/// 2D and 2.5D, of a forward pass and of each of the two products of a backward pass, where activations and weights
/// both move to where the result is: SUMMA of a layer's share of the tokens (Xu et al. 2021, section 3.1).
constexpr double grid_map_bytes(GridMapSizes const& of) {
    return summa_bytes({.m = of.tokens / of.depth,
                        .n = of.out,
                        .k = of.in,
                        .rows = of.rows,
                        .columns = of.columns,
                        .element_bytes = of.element_bytes});
}
/// The same where x stays: weights go to all rows, from where they lie [out/columns, in/rows] to [out, in/columns], and
/// y is summed over the columns. A forward pass whose output is narrower than its input sends less so.
constexpr double grid_map_bytes_where_x_stays(GridMapSizes const& of) {
    double const weights = of.out * of.in / of.columns * (1 - 1 / (of.rows * of.columns));
    double const sums = of.tokens / of.depth * of.out / of.rows * (of.columns - 1) / of.columns;
    return of.element_bytes * (weights + sums);
}
/// 3D: x gathered over the columns, weights over the rows, y summed over the depth (Bian et al. 2021, section 3.1).
constexpr double cube_map_bytes(GridMapSizes const& of) {
    return layered_product_bytes({.m = of.tokens,
                                  .n = of.out,
                                  .k = of.in,
                                  .rows = of.rows,
                                  .columns = of.columns,
                                  .inner = of.depth,
                                  .element_bytes = of.element_bytes});
}
/// The same where y is not summed: x goes to where y is, and weights to all rows and layers. It sends less where tokens
/// are many. A map whose output is the narrower sends as much by its adjoint: x stays and y is summed over the columns.
constexpr double cube_map_bytes_where_y_stays(GridMapSizes const& of) {
    double const x = of.tokens * of.in / (of.rows * of.depth) * (1 - 1 / (of.columns * of.depth));
    double const weights = of.in * of.out / of.columns * (1 - 1 / (of.rows * of.depth));
    return of.element_bytes * (x + weights);
}

} // namespace pentad::planner
