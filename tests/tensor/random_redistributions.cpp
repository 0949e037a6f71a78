// ranks: 1 2 3 4 6 8
//
// Redistributions between layouts drawn at random, over up to three axes, of all elements: the value, the adjoint law,
// the bytes of the plan (in a dry run too), against what each rank holds by the words of the layouts; some blocks are
// uneven, or empty. By any algorithm, from segments and from elsewhere, into new memory and into memory that exists.
#include <doctest/doctest.h>

#include "support/holding.hpp"
#include "support/pairing.hpp"
#include "support/world.hpp"

#include <pentad/layout/cost.hpp>
#include <pentad/layout/float8.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace own {
/// An element of a user's.
struct Momentum {
    double x, y;
    float minus_x;
    KOKKOS_FUNCTION friend Momentum operator+(Momentum a, Momentum b) {
        return {a.x + b.x, a.y + b.y, a.minus_x + b.minus_x};
    }
};
} // namespace own
template <>
struct pentad::Element<own::Momentum> {
    static constexpr std::string_view name = "momentum";
    using accumulator = own::Momentum;
    static constexpr bool is_commutative = true;
};

using namespace pentad;
using namespace pentad::ml;
using support::Holding;
using support::pairing;
using support::world_rank;
using support::world_size;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Numbers = std::vector<double>;
using M = Mesh<Axis<dp>, Axis<cp>, Axis<tp>>;
constexpr std::array<std::string_view, 3> axes{"dp", "cp", "tp"};

using Elements = std::tuple<f64, f32, bf16, i8, i16, i32, i64, u8, u16, u32, u64, std::complex<f32>, std::complex<f64>,
                            Kokkos::complex<f64>, own::Momentum, f8e4m3, f8e5m2>;

/// A small whole number as an element, and back: what has two parts has its negative as the second.
template <class T>
T made(double x) {
    if constexpr (requires { Element<T>::is_complex; })
        return {static_cast<typename T::value_type>(x), static_cast<typename T::value_type>(-x)};
    else if constexpr (std::is_same_v<T, own::Momentum>)
        return {x, 2 * x, static_cast<float>(-x)};
    else
        return static_cast<T>(static_cast<accumulator_t<T>>(x));
}
template <class T>
double read(T element) {
    if constexpr (requires { Element<T>::is_complex; }) {
        CHECK(element.imag() == -element.real());
        return static_cast<double>(element.real());
    } else if constexpr (std::is_same_v<T, own::Momentum>) {
        CHECK(element.minus_x == -static_cast<float>(element.x));
        CHECK(element.y == 2 * element.x);
        return element.x;
    } else
        return static_cast<double>(element);
}

Numbers numbers_of(Holding const& mine, int seed) {
    auto numbers = support::shard(mine, seed);
    for (auto& x : numbers) x = std::abs(x);
    return numbers;
}

/// How a redistribution is called.
struct Way {
    bool is_outside; ///< the source lies in no segment
    bool is_into;    ///< the result goes into memory that exists
    bool is_started; ///< and is waited for later
};
template <class T>
Numbers redistributed(Context<Exec> const& context, LayoutValue const& from, LayoutValue const& to,
                      Holding const& source, Numbers const& x, std::size_t size, Way way) {
    auto shard = detail::Shard<T, Exec>::make(
        context, shard_shape(from, source.extents(), context.communicators().mesh(), world_rank()));
    std::vector<T> host(x.size());
    std::transform(x.begin(), x.end(), host.begin(), [](double value) { return made<T>(value); });
    memory::copy_from_host(context.exec(), shard.data, host.data(), host.size() * sizeof(T));
    auto outside = host;
    if constexpr (memory::runs_on_host<Exec>)
        if (way.is_outside) {
            shard.block = {};
            shard.data = outside.data();
        }
    if (way.is_into) {
        auto const target = context.take(size * sizeof(T));
        View<T, 1, Exec> const view(static_cast<T*>(target.data()), size);
        if (way.is_started) {
            detail::StartedPlan<T, Exec> started(context, make_plan(from, to), std::move(shard));
            shard = started.wait(view);
            memory::copy(context.exec(), view.data(), shard.data, shard.data == view.data() ? 0 : size * sizeof(T));
        } else {
            detail::carry_out_into(context, make_plan(from, to), std::move(shard), view);
        }
        host.resize(size);
        memory::copy_to_host(context.exec(), host.data(), view.data(), size * sizeof(T));
    } else {
        if (way.is_started) {
            detail::StartedPlan<T, Exec> started(context, make_plan(from, to), std::move(shard));
            shard = started.wait();
        } else {
            shard = detail::carry_out(context, make_plan(from, to), std::move(shard));
        }
        host.resize(shard.size());
        memory::copy_to_host(context.exec(), host.data(), shard.data, host.size() * sizeof(T));
    }
    Numbers result;
    for (auto const& value : host) result.push_back(read(value));
    return result;
}

using Run = Numbers (*)(Context<Exec> const&, LayoutValue const&, LayoutValue const&, Holding const&, Numbers const&,
                        std::size_t, Way);
struct OfElement {
    std::size_t size;
    Run run;
};
constexpr auto of_elements = []<class... T>(std::tuple<T...>*) {
    return std::array{OfElement{sizeof(T), &redistributed<T>}...};
}(static_cast<Elements*>(nullptr));

/// The sum over the summands of an element.
double value(LayoutValue const& layout, std::span<MeshAxisValue const> mesh, std::size_t element) {
    int summands = 1;
    for (auto const axis : layout.partial) summands *= find_axis(mesh, axis).extent;
    double sum = 0;
    for (int i = 0; i < summands; ++i) sum += std::abs(support::number(1, element, i));
    return sum;
}

} // namespace

TEST_CASE("a redistribution between any two layouts") {
    std::mt19937 draw(static_cast<unsigned>(world_size()));
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(draw()) % n; };
    constexpr int on_a_mesh = 200;
    int const draws = world_size() < 4 ? 2600 : 800; // 10,200 in all
    for (int done = 0; done < draws; done += on_a_mesh) {
        auto const ranks = support::drawn_mesh(world_size(), below);
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
                bare.dimensions[d].is_uneven = below(3) == 0;
                whole[d] = bare.dimensions[d].is_uneven
                               ? below(12)
                               : (below(2) == 0 ? 1 : static_cast<std::size_t>(world_size())) * (1 + below(3));
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
            std::size_t element = below(of_elements.size());
            bare.element_size = of_elements[element].size;
            auto const from = drawn(), to = drawn();
            bool const adds = !from.partial.empty() || !to.replicated.empty(); // there, or in the adjoint
            if (of_elements[element].size == 1 && adds) element = 3; // sums are too large for floats of 8 bits
            CAPTURE(to_string(from, whole.data()));
            CAPTURE(to_string(to, whole.data()));
            CAPTURE(element);
            Holding const source(from, extents, mesh.axes(), world_rank()),
                target(to, extents, mesh.axes(), world_rank());
            auto const run = of_elements[element].run;
            auto const x = numbers_of(source, 1);
            observe::ledger().clear();
            constexpr std::array algorithms{comm::Algorithm::automatic, comm::Algorithm::mailbox, comm::Algorithm::mpi,
                                            comm::Algorithm::process};
            comm::forced_algorithm() = algorithms[below(algorithms.size())];
            Way const way{below(2 * static_cast<std::size_t>(world_size())) == static_cast<std::size_t>(world_rank()),
                          below(2) == 0, below(2) == 0};
            CAPTURE(static_cast<int>(comm::forced_algorithm()));
            CAPTURE(way.is_outside);
            CAPTURE(way.is_into);
            CAPTURE(way.is_started);
            auto const ax = run(context, from, to, source, x, target.size(), way);
            auto const cost = cost_of(make_plan(from, to), from, extents, mesh.axes(), world_rank());
            for (auto const axis : axes) CHECK(observe::ledger().bytes(axis) == doctest::Approx(cost.on(axis)));
            {
                observe::DryRun const dry;
                comm::Communicators imagined(mesh, world_rank(), mesh.size());
                Context<Exec> const without_memory(imagined);
                (void)run(without_memory, from, to, source, x, target.size(), way);
                for (auto const axis : axes) CHECK(observe::ledger().bytes(axis) == doctest::Approx(cost.on(axis)));
            }

            REQUIRE(ax.size() == target.size());
            if (to.partial.empty()) {
                for (std::size_t e = 0; e < ax.size(); ++e) CHECK(ax[e] == value(from, mesh.axes(), target.global(e)));
            }
            Holding const of_y(support::dual(to), extents, mesh.axes(), world_rank());
            auto const y = numbers_of(of_y, 2);
            CHECK(pairing(target, ax, y) ==
                  pairing(source, x, run(context, support::dual(to), support::dual(from), of_y, y, x.size(), way)));
            comm::forced_algorithm() = comm::Algorithm::automatic;
        }
    }
}
