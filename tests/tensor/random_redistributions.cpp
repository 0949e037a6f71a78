// ranks: 1 2 3 4 6 8
//
// Redistributions between layouts drawn at random, over up to three axes, of all elements: the value, the adjoint law,
// the bytes of the plan, against what each rank holds by the words of the layouts.
#include <doctest/doctest.h>

#include "support/holding.hpp"
#include "support/pmpi_counter.hpp"
#include "support/world.hpp"

#include <pentad/layout/cost.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;
using support::Holding;
using support::world_rank;
using support::world_size;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Numbers = std::vector<double>;
using M = Mesh<Axis<dp>, Axis<cp>, Axis<tp>>;
constexpr std::array<std::string_view, 3> axes{"dp", "cp", "tp"};
constexpr int draws = 1700; // on each number of ranks: 10,200 in all

template <class T>
Numbers redistributed(Context<Exec> const& context, LayoutValue const& from, LayoutValue const& to, Holding const& source,
                      Numbers const& x) {
    Numbers result;
    detail::Shard<T, Exec> shard{context.take(x.size() * sizeof(T)), nullptr, {}, from.rank};
    shard.data = static_cast<T*>(shard.block.data());
    for (std::size_t d = 0; d < from.rank; ++d) shard.local[d] = source.local(d);
    std::vector<T> host(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) host[i] = static_cast<T>(static_cast<accumulator_t<T>>(x[i]));
    memory::copy_from_host(context.exec(), shard.data, host.data(), host.size() * sizeof(T));
    shard = detail::carry_out(context, make_plan(from, to), std::move(shard));
    host.resize(shard.size());
    memory::copy_to_host(context.exec(), host.data(), shard.data, host.size() * sizeof(T));
    for (auto const value : host) result.push_back(static_cast<double>(value));
    return result;
}

double over_ranks(double mine) {
    PMPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return mine;
}
double pairing(Holding const& mine, Numbers const& a, Numbers const& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return over_ranks(mine.counts() ? sum : 0);
}

/// The sum over the summands of an element.
double value(LayoutValue const& layout, std::span<MeshAxisValue const> mesh, std::size_t element) {
    int summands = 1;
    for (auto const axis : layout.partial) summands *= find_axis(mesh, axis).extent;
    double sum = 0;
    for (int i = 0; i < summands; ++i) sum += support::number(1, element, i);
    return sum;
}

} // namespace

TEST_CASE("a redistribution between any two layouts") {
    std::mt19937 draw(static_cast<unsigned>(world_size()));
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(draw()) % n; };
    constexpr int on_a_mesh = 170;
    for (int done = 0; done < draws; done += on_a_mesh) {
        std::array<int, 3> ranks{1, 1, 1};
        for (int rest = world_size(); rest > 1;) {
            int const factor = rest % 2 == 0 ? 2 : rest;
            ranks[below(3)] *= factor;
            rest /= factor;
        }
        M const mesh(ranks[0], ranks[1], ranks[2]);
        comm::Communicators communicators(MPI_COMM_WORLD, mesh);
        Context<Exec> const context(communicators);
        for (int i = 0; i < on_a_mesh; ++i) {
            LayoutValue bare;
            bare.rank = 1 + below(4);
            std::array<std::size_t, max_dimensions> whole{};
            constexpr std::array<std::string_view, 4> names{"a", "b", "c", "d"};
            for (std::size_t d = 0; d < bare.rank; ++d) {
                bare.dimensions[d].name = names[d];
                whole[d] = (below(2) == 0 ? 1 : static_cast<std::size_t>(world_size())) * (1 + below(3));
            }
            auto const extents = std::span<std::size_t const>(whole).first(bare.rank);
            auto const drawn = [&] {
                for (;;) { // until all extents divide
                    auto order = axes;
                    std::shuffle(order.begin(), order.end(), draw);
                    auto const layout =
                        support::placed(bare, order, [&](std::string_view) { return below(bare.rank + 3); });
                    try {
                        (void)local_extents(layout, extents, mesh.axes());
                        return layout;
                    } catch (std::invalid_argument const&) {
                    }
                }
            };
            std::size_t const element = below(5);
            bare.element_size = std::array<std::size_t, 5>{8, 4, 2, 4, 8}[element];
            auto const from = drawn(), to = drawn();
            CAPTURE(to_string(from, whole.data()));
            CAPTURE(to_string(to, whole.data()));
            CAPTURE(element);
            Holding const source(from, extents, mesh.axes(), world_rank()), target(to, extents, mesh.axes(), world_rank());
            auto const run = [&](LayoutValue const& a, LayoutValue const& b, Holding const& mine, Numbers const& x) {
                switch (element) {
                case 1: return redistributed<f32>(context, a, b, mine, x);
                case 2: return redistributed<bf16>(context, a, b, mine, x);
                case 3: return redistributed<i32>(context, a, b, mine, x);
                case 4: return redistributed<i64>(context, a, b, mine, x);
                default: return redistributed<f64>(context, a, b, mine, x);
                }
            };
            auto const x = support::shard(source, 1);
            observe::ledger().clear();
            pmpi::clear();
            auto const ax = run(from, to, source, x);
            auto const cost = cost_of(make_plan(from, to), from, extents, mesh.axes(), world_rank());
            for (auto const axis : axes) CHECK(observe::ledger().bytes(axis) == doctest::Approx(cost.on(axis)));

            REQUIRE(ax.size() == target.size());
            if (to.partial.empty()) {
                for (std::size_t e = 0; e < ax.size(); ++e) CHECK(ax[e] == value(from, mesh.axes(), target.global(e)));
            }
            Holding const of_y(support::dual(to), extents, mesh.axes(), world_rank());
            auto const y = support::shard(of_y, 2);
            CHECK(pairing(target, ax, y) == pairing(source, x, run(support::dual(to), support::dual(from), of_y, y)));
        }
    }
}
