// The grid on which a product of plain matrices sends least, and the bounds that no product is below.
#pragma once

#include <pentad/layout/dimension.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad {

/// How many ranks lie along the rows, the columns and the summands of a product.
struct ProductGrid {
    int rows = 1, columns = 1, inner = 1;

    [[nodiscard]] constexpr int ranks() const { return rows * columns * inner; }
    friend constexpr bool operator==(ProductGrid const&, ProductGrid const&) = default;

    /// Elements of A [m, k], B [k, n] and C [m, n] that a rank multiplies or sums: its block of each.
    [[nodiscard]] constexpr double touched(double m, double n, double k) const {
        return m * k / (rows * inner) + k * n / (inner * columns) + m * n / (rows * columns);
    }
    /// Elements that a rank sends where the matrices are shared out evenly and a rank's shares lie in its blocks: what
    /// it has touched but for its shares.
    [[nodiscard]] constexpr double sent(double m, double n, double k) const {
        return touched(m, n, k) - (m * k + k * n + m * n) / ranks();
    }
};

/// The fewest elements of the three matrices that some rank touches in any product of m x k and k x n matrices in which
/// the ranks share out the operations evenly (Al Daas et al. 2022, "Tight memory-independent parallel matrix
/// multiplication communication lower bounds", theorem 3). Where a rank holds sums of at most `memory` elements of C:
/// 2mnk / (p sqrt(S)) + S (Kwasniewski et al. 2019, "Red-blue pebbling revisited", section 6; it is Irony, Toledo and
/// Tiskin 2004 with the best constant). What a rank sends and holds of the factors is no less; nor, but for its shares,
/// what it sends.
inline double product_lower_bound(double m, double n, double k, double ranks,
                                  double memory = std::numeric_limits<double>::infinity()) {
    double const operations = m * n * k / ranks;
    std::array<double, 3> parts{n * k / ranks, m * k / ranks, m * n / ranks}; // no rank touches less of a matrix
    std::sort(parts.begin(), parts.end());
    // The smallest sum of three numbers, none below its part, whose product is operations^2 (Loomis and Whitney 1949).
    double const cube = std::cbrt(operations * operations);
    double least = 3 * cube, most_of_c = cube;
    if (parts[2] > cube) {
        double const square = operations / std::sqrt(parts[2]);
        least = parts[2] + 2 * square;
        most_of_c = square;
        if (parts[1] > square) least = parts[2] + parts[1] + operations * operations / (parts[2] * parts[1]);
    }
    if (memory < most_of_c) least = std::max(least, 2 * operations / std::sqrt(memory) + memory);
    return least;
}

/// Whether the ranks of a grid hold blocks of the same size.
enum class GridBlocks { equal, uneven };

/// The grid of all `ranks` ranks on which a rank sends the fewest elements, of those that divide the matrices, where
/// blocks are to be equal, and with which a rank's block of C is of at most `memory` elements; of grids that send as
/// much, the one with the fewest ranks along the summands, then the one nearest to a square. As CARMA (Demmel et al.
/// 2013) and COSMA (Kwasniewski et al. 2019) choose, but that no rank is left idle: a mesh is all of them.
/// @throws std::invalid_argument where no grid divides the matrices, or none has blocks as small as that
inline ProductGrid choose_grid(std::size_t m, std::size_t n, std::size_t k, int ranks,
                               GridBlocks blocks = GridBlocks::equal,
                               double memory = std::numeric_limits<double>::infinity()) {
    auto const divides = [blocks](std::size_t extent, int by) {
        return blocks == GridBlocks::uneven || extent % static_cast<std::size_t>(by) == 0;
    };
    auto const x = static_cast<double>(m), y = static_cast<double>(n), z = static_cast<double>(k);
    ProductGrid best;
    double least = std::numeric_limits<double>::infinity(), smallest = least;
    bool found = false, divided = false;
    for (int inner = 1; inner <= ranks; ++inner)
        for (int rows = 1; ranks % inner == 0 && rows <= ranks / inner; ++rows) {
            ProductGrid const grid{rows, ranks / inner / rows, inner};
            if (grid.ranks() != ranks) continue;
            if (!divides(m, rows * inner) || !divides(n, grid.columns) || !divides(k, inner * rows) ||
                !divides(k, inner * grid.columns))
                continue;
            divided = true;
            double const block = std::ceil(x / rows) * std::ceil(y / grid.columns);
            smallest = std::min(smallest, block);
            if (block > memory) continue;
            double const sent = grid.sent(x, y, z);
            bool const is_squarer =
                grid.inner == best.inner && std::max(grid.rows, grid.columns) < std::max(best.rows, best.columns);
            bool const sends_less = sent < least * (1 - 1e-12), as_much = sent <= least * (1 + 1e-12);
            if (found && !sends_less && !(as_much && is_squarer)) continue;
            best = grid;
            least = sent;
            found = true;
        }
    auto const shape = "m = " + std::to_string(m) + ", n = " + std::to_string(n) + ", k = " + std::to_string(k);
    if (!divided)
        throw std::invalid_argument("no grid of " + std::to_string(ranks) + " ranks divides a product of " + shape +
                                    ": use uneven blocks, or change the extents or the number of ranks");
    if (!found)
        throw std::invalid_argument("a rank's block of a product of " + shape + " on " + std::to_string(ranks) +
                                    " ranks has at least " + std::to_string(static_cast<std::size_t>(smallest)) +
                                    " elements: allow it as much memory, or take more ranks");
    return best;
}

/// The axes of a grid.
struct grid_rows {
    static constexpr std::string_view name = "grid_rows";
};
struct grid_columns {
    static constexpr std::string_view name = "grid_columns";
};
struct grid_inner {
    static constexpr std::string_view name = "grid_inner";
};
using ProductMesh = Mesh<Axis<grid_rows>, Axis<grid_columns>, Axis<grid_inner>>;

/// A [i, k], B [k, j] and C [i, j] shared out evenly on a grid, so that a rank's shares lie in its blocks.
template <class T, class I, class K>
using GridLeft = Layout<T, Dims<Dim<I, dynamic, grid_rows>, Dim<K, dynamic, grid_inner, grid_columns>>>;
template <class T, class K, class J>
using GridRight = Layout<T, Dims<Dim<K, dynamic, grid_inner, grid_rows>, Dim<J, dynamic, grid_columns>>>;
template <class T, class I, class J>
using GridResult = Layout<T, Dims<Dim<I, dynamic, grid_rows, grid_inner>, Dim<J, dynamic, grid_columns>>>;

} // namespace pentad
