// ranks: 1 2 3 4 6 8
//
// Ghost cells of layouts drawn at random: filled ones hold what their owners hold, summands arrive at their owners, and
// both are the adjoint of each other. Cells without a meaning hold NaN, which nothing may read.
#include <doctest/doctest.h>

#include "support/holding.hpp"
#include "support/world.hpp"

#include <pentad/layout/cost.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using support::world_rank;
using support::world_size;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Numbers = std::vector<double>;
using M = Mesh<Axis<dp>, Axis<cp>, Axis<tp>>;
constexpr std::array<std::string_view, 3> axes{"dp", "cp", "tp"};
constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

/// A cell of a rank's memory.
struct Cell {
    std::size_t element = 0;
    bool means_nothing = false;
    bool is_copy = false; ///< a filled ghost cell
    int summand = 0;      ///< which of its element's
};

/// All of them, row-major.
class Cells {
  public:
    std::vector<Cell> cells{Cell()};
    bool counts = true, is_first_copy = true; ///< of what invariant axes, also of what replicated ones make copies

    Cells(LayoutValue const& layout, std::span<std::size_t const> extents, std::span<MeshAxisValue const> mesh) {
        for (auto const axis : layout.partial) {
            auto const along = find_axis(mesh, axis);
            cells[0].summand = cells[0].summand * along.extent + along.coordinate(world_rank());
        }
        for (std::size_t d = 0; d < layout.rank; ++d) {
            auto const& dimension = layout.dimensions[d];
            long blocks = 1, mine = 0;
            for (auto const axis : dimension.axes) {
                auto const along = find_axis(mesh, axis);
                blocks *= along.extent;
                mine = mine * along.extent + along.coordinate(world_rank());
            }
            auto const n = static_cast<long>(extents[d]), width = static_cast<long>(dimension.width);
            long const begin = n * mine / blocks, end = n * (mine + 1) / blocks;
            std::vector<Cell> longer;
            for (auto const& outer : cells)
                for (long i = begin - width; i < end + width; ++i) {
                    bool const is_owned = i >= begin && i < end;
                    auto cell = outer;
                    cell.element = outer.element * extents[d] + static_cast<std::size_t>((i + n) % n);
                    if (!is_owned && (dimension.ghosts == Ghosts::stale ||
                                      (dimension.boundary == Boundary::open && (i < 0 || i >= n))))
                        cell.means_nothing = true;
                    if (!is_owned && dimension.ghosts == Ghosts::filled) cell.is_copy = true;
                    if (dimension.ghosts == Ghosts::summands)
                        cell.summand = cell.summand * 499 + static_cast<int>(mine * 31 + i - begin + width + 1);
                    longer.push_back(cell);
                }
            cells = longer;
        }
        for (auto const& axis : mesh) {
            auto const placement = layout.placement(axis.name);
            bool const is_first = find_axis(mesh, axis.name).coordinate(world_rank()) == 0;
            if (placement == Placement::invariant) counts = counts && is_first;
            if (placement == Placement::invariant || placement == Placement::replicated)
                is_first_copy = is_first_copy && is_first;
        }
    }
};

/// Whole numbers, the same wherever copies of a summand are held.
Numbers numbers(Cells const& all, int seed) {
    Numbers result;
    for (auto const& cell : all.cells)
        result.push_back(cell.means_nothing ? nothing : support::number(seed, cell.element, cell.summand));
    return result;
}

/// The value of each element: the sum of its summands over all ranks.
Numbers value(Cells const& all, Numbers const& x, std::size_t elements) {
    Numbers sum(elements, 0);
    for (std::size_t i = 0; all.is_first_copy && i < x.size(); ++i)
        if (auto const& cell = all.cells[i]; !cell.means_nothing && !cell.is_copy) sum[cell.element] += x[i];
    PMPI_Allreduce(MPI_IN_PLACE, sum.data(), static_cast<int>(elements), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

double pairing(Cells const& cells, Numbers const& a, Numbers const& b) {
    double sum = 0;
    for (std::size_t i = 0; cells.counts && i < a.size(); ++i)
        if (!cells.cells[i].means_nothing) sum += a[i] * b[i];
    PMPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

Numbers redistributed(Context<Exec> const& context, LayoutValue const& from, LayoutValue const& to,
                      std::span<std::size_t const> extents, Numbers const& x, bool is_started) {
    auto shard = detail::Shard<f64, Exec>::make(
        context, shard_shape(from, extents, context.communicators().mesh(), world_rank()));
    REQUIRE(shard.size() == x.size());
    memory::copy_from_host(context.exec(), shard.data, x.data(), x.size() * sizeof(f64));
    auto const plan = make_plan(from, to);
    REQUIRE(plan.valid());
    if (is_started) {
        detail::StartedPlan<f64, Exec> started(context, plan, std::move(shard));
        shard = started.wait();
    } else {
        shard = detail::carry_out(context, plan, std::move(shard));
    }
    Numbers result(shard.size());
    memory::copy_to_host(context.exec(), result.data(), shard.data, result.size() * sizeof(f64));
    return result;
}

} // namespace

TEST_CASE("ghost cells of any layouts, filled and added back") {
    std::mt19937 draw(static_cast<unsigned>(world_size()));
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(draw()) % n; };
    for (int meshes = 0; meshes < 6; ++meshes) {
        auto const ranks = support::drawn_mesh(world_size(), below);
        M const mesh(ranks[0], ranks[1], ranks[2]);
        comm::Communicators communicators(MPI_COMM_WORLD, mesh);
        Context<Exec> const context(communicators);
        for (int i = 0; i < 150; ++i) {
            LayoutValue bare;
            bare.element_size = sizeof(f64);
            bare.rank = 1 + below(3);
            std::array<std::size_t, max_dimensions> whole{};
            std::size_t elements = 1;
            constexpr std::array<std::string_view, 3> names{"z", "y", "x"};
            for (std::size_t d = 0; d < bare.rank; ++d) {
                bare.dimensions[d].name = names[d];
                bare.dimensions[d].is_uneven = below(3) > 0;
                elements *= whole[d] = bare.dimensions[d].is_uneven ? 3 + below(7) : 8 * 3;
            }
            if (elements > 4000) continue;
            auto const extents = std::span<std::size_t const>(whole).first(bare.rank);
            bool const only_ghosts_change = below(2) == 0;
            auto const drawn = [&] {
                auto order = axes;
                std::shuffle(order.begin(), order.end(), draw);
                auto layout = support::placed(bare, order, [&](std::string_view) { return below(bare.rank + 3); });
                for (std::size_t d = 0; d < bare.rank; ++d) {
                    layout.dimensions[d].boundary = below(2) == 0 ? Boundary::open : Boundary::periodic;
                    layout.dimensions[d].width = below(4);
                }
                return layout;
            };
            auto from = drawn(), to = only_ghosts_change ? from : drawn();
            for (auto* layout : {&from, &to})
                for (std::size_t d = 0; d < bare.rank; ++d) {
                    auto& dimension = layout->dimensions[d];
                    dimension.ghosts = dimension.width == 0 ? Ghosts::none : static_cast<Ghosts>(1 + below(3));
                    if (dimension.width == 0) dimension.boundary = Boundary::open;
                }
            CAPTURE(to_string(from, whole.data()));
            CAPTURE(to_string(to, whole.data()));
            Cells const source(from, extents, mesh.axes()), target(to, extents, mesh.axes());
            auto const x = numbers(source, 1);
            observe::ledger().clear();
            auto const ax = redistributed(context, from, to, extents, x, below(2) == 0);
            auto const cost = cost_of(make_plan(from, to), from, extents, mesh.axes(), world_rank());
            for (auto const axis : axes) CHECK(observe::ledger().bytes(axis) == doctest::Approx(cost.on(axis)));

            auto const before = value(source, x, elements), after = value(target, ax, elements);
            CHECK(before == after);
            bool const has_summands =
                !to.partial.empty() || std::any_of(to.dimensions.begin(), to.dimensions.end(),
                                                   [](auto const& d) { return d.ghosts == Ghosts::summands; });
            for (std::size_t c = 0; !has_summands && c < ax.size(); ++c)
                if (!target.cells[c].means_nothing) CHECK(ax[c] == before[target.cells[c].element]);
            auto const y = numbers(Cells(dual(to), extents, mesh.axes()), 2);
            CHECK(pairing(target, ax, y) ==
                  pairing(source, x, redistributed(context, dual(to), dual(from), extents, y, below(2) == 0)));
        }
    }
}
