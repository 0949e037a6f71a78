// The grids that are chosen for products, and what they send beside the lower bounds.
#include <doctest/doctest.h>

#include <pentad/product/grid.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <stdexcept>

using namespace pentad;

namespace {

constexpr std::array<std::size_t, 3> square{4096, 4096, 4096}, tall{1 << 18, 256, 256}, long_sums{256, 256, 1 << 18},
    panel{1 << 14, 1 << 14, 256};

double touched(ProductGrid const& grid, std::array<std::size_t, 3> const& of) {
    return grid.touched(static_cast<double>(of[0]), static_cast<double>(of[1]), static_cast<double>(of[2]));
}
double bound(std::array<std::size_t, 3> const& of, int ranks, double memory = INFINITY) {
    return product_lower_bound(static_cast<double>(of[0]), static_cast<double>(of[1]), static_cast<double>(of[2]),
                               ranks, memory);
}

} // namespace

TEST_CASE("the grid of a product touches at most 1.1 times the lower bound") {
    for (auto const& of : {square, tall, long_sums, panel})
        for (int const ranks : {1, 2, 4, 8, 16, 64}) {
            auto const grid = choose_grid(of[0], of[1], of[2], ranks);
            CAPTURE(of[0]);
            CAPTURE(of[2]);
            CAPTURE(ranks);
            CHECK(grid.ranks() == ranks);
            CHECK(touched(grid, of) >= bound(of, ranks) * (1 - 1e-12));
            CHECK(touched(grid, of) <= 1.1 * bound(of, ranks));
        }
}

TEST_CASE("the grid of a product follows its shape") {
    CHECK(choose_grid(4096, 4096, 4096, 1) == ProductGrid{1, 1, 1});
    CHECK(choose_grid(4096, 4096, 4096, 4) == ProductGrid{2, 2, 1});
    CHECK(choose_grid(4096, 4096, 4096, 8) == ProductGrid{2, 2, 2});
    CHECK(choose_grid(4096, 4096, 4096, 64) == ProductGrid{4, 4, 4});
    CHECK(choose_grid(1 << 18, 256, 256, 16) == ProductGrid{16, 1, 1}); // a tall A: B goes to all
    CHECK(choose_grid(256, 1 << 18, 256, 16) == ProductGrid{1, 16, 1});
    CHECK(choose_grid(256, 256, 1 << 18, 16) == ProductGrid{1, 1, 16});    // inner products: C is summed
    CHECK(choose_grid(1 << 14, 1 << 14, 256, 16) == ProductGrid{4, 4, 1}); // outer products
    CHECK(choose_grid(30, 50, 15, 15) == ProductGrid{3, 5, 1});
}

TEST_CASE("within less memory the grid of a product touches at most 1.1 times the bound for it") {
    double const n = 4096, whole = n * n;
    CHECK(choose_grid(4096, 4096, 4096, 64, GridBlocks::equal, whole / 16) == ProductGrid{4, 4, 4});
    CHECK(choose_grid(4096, 4096, 4096, 64, GridBlocks::equal, whole / 64) == ProductGrid{8, 8, 1});
    for (int const ranks : {4, 16, 64})
        for (double const memory : {whole / ranks, 2 * whole / ranks, 4 * whole / ranks}) {
            auto const grid = choose_grid(4096, 4096, 4096, ranks, GridBlocks::equal, memory);
            double const used = whole / (grid.rows * grid.columns);
            CHECK(used <= memory);
            CHECK(touched(grid, square) >= bound(square, ranks, memory) * (1 - 1e-12));
            CHECK(touched(grid, square) <= 1.1 * bound(square, ranks, used)); // of the memory that it uses
        }
    // Irony, Toledo and Tiskin 2004, theorem 3.1, with the memory of a rank: the weaker constant.
    CHECK(bound(square, 64, whole / 64) > n * n * n / (2 * std::sqrt(2.0) * 64 * std::sqrt(whole / 64)) - whole / 64);
}

TEST_CASE("the lower bound is that of the three cases of Al Daas et al. 2022") {
    double const m = 4096, n = 512, k = 64; // they are sorted
    auto const of = [&](double ranks) { return product_lower_bound(m, n, k, ranks); };
    CHECK(of(4) == doctest::Approx((m * n + m * k) / 4 + n * k));
    CHECK(of(256) == doctest::Approx(2 * std::sqrt(m * n * k * k / 256) + m * n / 256));
    CHECK(of(4096) == doctest::Approx(3 * std::pow(m * n * k / 4096, 2.0 / 3)));
    CHECK(product_lower_bound(k, m, n, 256) == doctest::Approx(of(256))); // whichever dimension is which
    CHECK(product_lower_bound(n, k, m, 4) == doctest::Approx(of(4)));
}

TEST_CASE("a product that no grid divides, or whose blocks are too large, is refused") {
    CHECK_THROWS_WITH_AS(
        (void)choose_grid(3, 5, 7, 2),
        "no grid of 2 ranks divides a product of m = 3, n = 5, k = 7: use uneven blocks, or change the extents or the "
        "number of ranks",
        std::invalid_argument);
    CHECK(choose_grid(3, 5, 7, 2, GridBlocks::uneven) == ProductGrid{1, 1, 2});
    CHECK(choose_grid(3, 3, 7, 2, GridBlocks::uneven, 6) == ProductGrid{1, 2, 1}); // the larger block is 3 x 2
    CHECK_THROWS_WITH_AS(
        (void)choose_grid(8, 8, 8, 4, GridBlocks::equal, 15),
        "a rank's block of a product of m = 8, n = 8, k = 8 on 4 ranks has at least 16 elements: allow "
        "it as much memory, or take more ranks",
        std::invalid_argument);
    CHECK_THROWS_WITH_AS((void)choose_grid(3, 3, 3, 2, GridBlocks::uneven, 5),
                         "a rank's block of a product of m = 3, n = 3, k = 3 on 2 ranks has at least 6 elements: allow "
                         "it as much memory, or take more ranks",
                         std::invalid_argument);
}
