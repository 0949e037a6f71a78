// ranks: 1 2 3 4 6 12
//
// Stencils on meshes beside one rank: every cell has the same bits.
#include <doctest/doctest.h>

#include "support/world.hpp"

#include <pentad/observe/counters.hpp>
#include <pentad/tensor/stencil.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

using namespace pentad;
using support::world_rank;
using support::world_size;

namespace {

struct rows {
    static constexpr std::string_view name = "rows";
};
struct columns {
    static constexpr std::string_view name = "columns";
};
struct y {
    static constexpr std::string_view name = "y";
    static constexpr bool has_uneven_blocks = true;
};
struct x {
    static constexpr std::string_view name = "x";
    static constexpr bool has_uneven_blocks = true;
};

using Exec = Kokkos::DefaultExecutionSpace;
template <std::size_t Width, Boundary Ends>
using Field = Layout<f64, Dims<Halo<Dim<y, dynamic, rows>, Width, Ends>, Halo<Dim<x, dynamic, columns>, Width, Ends>>>;
using Whole = Layout<f64, Dims<Dim<y>, Dim<x>>, Replicated<rows, columns>>;

/// A weighted sum over a square around each cell, corners included.
template <int Width>
struct Square {
    View<f64, 2, Exec> from, to;
    KOKKOS_FUNCTION void operator()(std::size_t i, std::size_t j) const {
        double sum = 0;
        for (int di = -Width; di <= Width; ++di)
            for (int dj = -Width; dj <= Width; ++dj)
                sum += from(i + static_cast<std::size_t>(di), j + static_cast<std::size_t>(dj)) / (30 + di + 3 * dj);
        to(i, j) = sum;
    }
};

double start_value(std::size_t i, std::size_t j) { return std::sin(1 + static_cast<double>(i * 37 + j)); }

/// Some steps on a mesh; the whole field afterwards.
template <std::size_t Width, Boundary Ends>
std::vector<double> stepped(Context<Exec> const& context, std::array<std::size_t, 2> extents) {
    using L = Field<Width, Ends>;
    using Stale = stale_t<L>;
    Tensor<Stale, Exec> now(context, extents), next(context, extents);
    now.clear();
    next.clear();
    auto const owned = owned_cells(now);
    auto const first = [&](std::size_t extent, int ranks, int rank) {
        return extent * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks);
    };
    std::size_t const top = first(extents[0], context.extent<rows>(), context.coordinate<rows>());
    std::size_t const left = first(extents[1], context.extent<columns>(), context.coordinate<columns>());
    auto const host = Kokkos::create_mirror_view(now.view());
    Kokkos::deep_copy(host, 0);
    for (std::size_t i = owned.begin[0]; i < owned.end[0]; ++i)
        for (std::size_t j = owned.begin[1]; j < owned.end[1]; ++j)
            host(i, j) = start_value(top + i - Width, left + j - Width);
    Kokkos::deep_copy(now.view(), host);
    for (int step = 0; step < 3; ++step) {
        std::size_t cells = 0;
        auto filled =
            fill_halo_and_compute<L>(std::move(now), [&](View<f64, 2, Exec> const& from, ElementBox const& box) {
                cells += box.size(2);
                for_each_cell<2>("square", context.exec(), box, Square<Width>{from, next.view()});
            });
        CHECK(cells == owned.size(2));
        now = std::exchange(next, std::move(filled).template as<Stale>());
    }
    auto const whole = redistribute<Whole>(now);
    std::vector<double> result(whole.size());
    whole.get(result.data());
    return result;
}

/// The same without a mesh.
template <int Width, Boundary Ends>
std::vector<double> reference(std::array<std::size_t, 2> extents) {
    auto const m = static_cast<long>(extents[0]), n = static_cast<long>(extents[1]);
    std::vector<double> now(extents[0] * extents[1]), next(now.size());
    for (long i = 0; i < m; ++i)
        for (long j = 0; j < n; ++j)
            now[static_cast<std::size_t>(i * n + j)] =
                start_value(static_cast<std::size_t>(i), static_cast<std::size_t>(j));
    for (int step = 0; step < 3; ++step) {
        for (long i = 0; i < m; ++i)
            for (long j = 0; j < n; ++j) {
                double sum = 0;
                for (int di = -Width; di <= Width; ++di)
                    for (int dj = -Width; dj <= Width; ++dj) {
                        long a = i + di, b = j + dj;
                        if (Ends == Boundary::periodic) a = (a + m) % m, b = (b + n) % n;
                        bool const is_inside = a >= 0 && a < m && b >= 0 && b < n;
                        sum += (is_inside ? now[static_cast<std::size_t>(a * n + b)] : 0) / (30 + di + 3 * dj);
                    }
                next[static_cast<std::size_t>(i * n + j)] = sum;
            }
        now.swap(next);
    }
    return now;
}

} // namespace

TEST_CASE("a stencil on any mesh has the bits of one rank, also where extents are ragged") {
    for (int r = 1; r <= world_size(); ++r) {
        if (world_size() % r != 0) continue;
        comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<rows>, Axis<columns>>(r, world_size() / r));
        Context<Exec> const context(communicators);
        for (auto const extents : {std::array<std::size_t, 2>{31, 17}, {13, 64}, {5, 7}, {4, 4}}) {
            CAPTURE(r);
            CAPTURE(extents[0]);
            CHECK(stepped<1, Boundary::open>(context, extents) == reference<1, Boundary::open>(extents));
            CHECK(stepped<1, Boundary::periodic>(context, extents) == reference<1, Boundary::periodic>(extents));
            CHECK(stepped<2, Boundary::open>(context, extents) == reference<2, Boundary::open>(extents));
            CHECK(stepped<3, Boundary::periodic>(context, extents) == reference<3, Boundary::periodic>(extents));
        }
    }
}
