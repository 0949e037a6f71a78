// The heat and the wave equation by central differences: the layout of a grid, a step for a cell, and a solution that
// is known.
#pragma once

#include "fields.hpp"

#include <cmath>
#include <cstddef>
#include <numbers>

using namespace fields;
using Exec = Kokkos::DefaultExecutionSpace;

template <std::size_t Rank, std::size_t Width, Boundary Ends>
struct Grid {
    using type = Layout<f64, Dims<Halo<Dim<z, dynamic, planes>, Width, Ends>, Halo<Dim<y, dynamic, rows>, Width, Ends>,
                                  Halo<Dim<x, dynamic, columns>, Width, Ends>>>;
};
template <std::size_t Width, Boundary Ends>
struct Grid<2, Width, Ends> {
    using type =
        Layout<f64, Dims<Halo<Dim<y, dynamic, rows>, Width, Ends>, Halo<Dim<x, dynamic, columns>, Width, Ends>>>;
};

/// The weight of a cell in the second difference of order 2 Width, by its distance from the middle cell.
template <std::size_t Width>
KOKKOS_FUNCTION constexpr double weight(std::size_t distance) {
    if (Width == 1) return distance == 0 ? -2 : 1;
    return distance == 0 ? -2.5 : distance == 1 ? 4.0 / 3 : -1.0 / 12;
}

/// A step for one cell: `next` holds the step before `now`, and then the one after it.
template <std::size_t Rank, std::size_t Width>
struct Update {
    View<f64, static_cast<int>(Rank), Exec> now, next;
    bool is_wave;
    double speed; ///< times the square of the time step (wave) or the time step (heat), over that of the grid's

    KOKKOS_FUNCTION void operator()(std::size_t j, std::size_t i) const {
        double laplacian = 2 * weight<Width>(0) * now(j, i);
        for (std::size_t w = 1; w <= Width; ++w)
            laplacian += weight<Width>(w) * (now(j - w, i) + now(j + w, i) + now(j, i - w) + now(j, i + w));
        next(j, i) = (is_wave ? 2 * now(j, i) - next(j, i) : now(j, i)) + speed * laplacian;
    }
    KOKKOS_FUNCTION void operator()(std::size_t k, std::size_t j, std::size_t i) const {
        double laplacian = 3 * weight<Width>(0) * now(k, j, i);
        for (std::size_t w = 1; w <= Width; ++w)
            laplacian += weight<Width>(w) * (now(k - w, j, i) + now(k + w, j, i) + now(k, j - w, i) + now(k, j + w, i) +
                                             now(k, j, i - w) + now(k, j, i + w));
        next(k, j, i) = (is_wave ? 2 * now(k, j, i) - next(k, j, i) : now(k, j, i)) + speed * laplacian;
    }
};

/// A product of sines, which a step multiplies by a number: where shards lie, and what it is multiplied by.
template <std::size_t Rank, std::size_t Width, Boundary Ends>
struct Mode {
    static constexpr bool is_periodic = Ends == Boundary::periodic;
    static constexpr bool is_exact = is_periodic || Width == 1; ///< else the ends are none of the sines'
    std::size_t first[Rank];                                    ///< global indices of the shard's first cell
    double angles[Rank];                                        ///< from cell to cell
    double eigenvalue = 0;                                      ///< of the sum of second differences

    template <class T>
    explicit Mode(T const& tensor) {
        auto const begin = first_index(tensor);
        for (std::size_t d = 0; d < Rank; ++d) {
            auto const n = static_cast<double>(tensor.extents()[d]);
            first[d] = begin[d];
            angles[d] = is_periodic ? 2 * std::numbers::pi / n : std::numbers::pi / (n + 1);
            eigenvalue += weight<Width>(0);
            for (std::size_t w = 1; w <= Width; ++w)
                eigenvalue += 2 * weight<Width>(w) * std::cos(static_cast<double>(w) * angles[d]);
        }
    }
    template <class... I>
    KOKKOS_FUNCTION double at(I... places) const {
        std::size_t const place[] = {places...}; // in the shard, which begins with ghost cells
        double product = 1;
        for (std::size_t d = 0; d < Rank; ++d)
            product *=
                Kokkos::sin(angles[d] * static_cast<double>(first[d] + place[d] + 1 - Width) + (is_periodic ? 0.5 : 0));
        return product;
    }
};
