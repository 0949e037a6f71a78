// ranks: 1 2 4 6 8
//
// Typed products: where the work is done, what is sent, bf16, gradients, and matrices on other meshes than the grid.
#include <doctest/doctest.h>

#include "support/holding.hpp"
#include "support/pairing.hpp"
#include "support/world.hpp"

#include <pentad/observe/counters.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/product.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

using namespace pentad;
using support::Holding;
using support::world_rank;
using support::world_size;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;

struct i {
    static constexpr std::string_view name = "i";
};
struct j {
    static constexpr std::string_view name = "j";
};
struct k {
    static constexpr std::string_view name = "k";
};
// Of any extent on any grid.
struct Uneven {
    static constexpr bool has_uneven_blocks = true;
};
struct p : Uneven {
    static constexpr std::string_view name = "p";
};
struct q : Uneven {
    static constexpr std::string_view name = "q";
};
struct s : Uneven {
    static constexpr std::string_view name = "s";
};
struct rows {
    static constexpr std::string_view name = "rows";
};
struct columns {
    static constexpr std::string_view name = "columns";
};

using M = Mesh<Axis<rows>, Axis<columns>>;
template <class T, class... D>
using L = Layout<T, Dims<D...>>;

/// A mesh of all ranks, as square as can be.
M mesh_of_all() {
    int r = static_cast<int>(std::sqrt(world_size()));
    while (world_size() % r != 0) --r;
    return M(r, world_size() / r);
}

template <class Layout>
Tensor<Layout, Exec> made(Context<Exec> const& context, std::array<std::size_t, 2> const& extents, int seed) {
    using T = typename Layout::element;
    Tensor<Layout, Exec> tensor(context, extents);
    Holding const mine(Layout::value, extents, context.communicators().mesh(), world_rank());
    std::vector<T> host;
    for (double const x : support::shard(mine, seed)) host.push_back(T(static_cast<accumulator_t<T>>(x)));
    tensor.set(host.data());
    return tensor;
}
template <class Layout>
std::vector<double> read(Tensor<Layout, Exec> const& tensor) {
    using T = typename Layout::element;
    std::vector<T> host(tensor.size());
    tensor.get_array(host.data());
    std::vector<double> numbers;
    for (auto const x : host) numbers.push_back(static_cast<double>(static_cast<accumulator_t<T>>(x)));
    return numbers;
}
/// Element (row, column) of A B, where A [m, k] and B [k, n] are made from seeds 1 and 2, as their layouts have them.
double wanted(std::size_t row, std::size_t column, std::size_t n, std::size_t inner, bool a_is_turned = false,
              bool b_is_turned = false, std::size_t m = 0) {
    double sum = 0;
    for (std::size_t s = 0; s < inner; ++s)
        sum += support::number(1, a_is_turned ? s * m + row : row * inner + s, 0) *
               support::number(2, b_is_turned ? column * inner + s : s * n + column, 0);
    return sum;
}
template <class Layout>
void check(Tensor<Layout, Exec> const& c, std::size_t inner, bool a_is_turned = false, bool b_is_turned = false) {
    auto const extents = c.extents();
    Holding const mine(Layout::value, extents, c.context().communicators().mesh(), world_rank());
    auto const found = read(c);
    for (std::size_t e = 0; e < found.size(); ++e) {
        std::size_t const at = mine.global(e);
        CHECK(found[e] ==
              wanted(at / extents[1], at % extents[1], extents[1], inner, a_is_turned, b_is_turned, extents[0]));
    }
}
double sent() {
    double bytes = 0;
    for (auto const axis : observe::ledger().axes()) bytes += observe::ledger().bytes(axis);
    return bytes;
}

/// The matrices of a product on a grid of ranks.
template <class T>
using Left = L<T, Dim<i, dynamic, rows>, Dim<k, dynamic, columns>>;
template <class T>
using Right = L<T, Dim<k, dynamic, rows>, Dim<j, dynamic, columns>>;
template <class T>
using Result = L<T, Dim<i, dynamic, rows>, Dim<j, dynamic, columns>>;

/// All ranks of the run as such a grid.
struct OnGrid {
    decltype(mesh_of_all()) mesh = mesh_of_all();
    comm::Communicators communicators{MPI_COMM_WORLD, mesh};
    Context<Exec> context{communicators};
};

} // namespace

TEST_CASE("a product on a grid sends as SUMMA does, and computes where C is") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    std::size_t const m = 96, n = 144, inner = 24;
    double const r = mesh.extent<rows>(), c = mesh.extent<columns>();
    using A = Left<f64>;
    using B = Right<f64>;
    using C = Result<f64>;
    auto const a = made<A>(context, {m, inner}, 1);
    auto const b = made<B>(context, {inner, n}, 2);
    observe::ledger().clear();
    auto const product = multiply<C>(a, b);
    CHECK(observe::ledger().bytes("columns") == doctest::Approx(8.0 * m * inner / r * (c - 1) / c));
    CHECK(observe::ledger().bytes("rows") == doctest::Approx(8.0 * n * inner / c * (r - 1) / r));
    check(product, inner);

    auto const sum = multiply<C>(a, b);
    multiply_into(sum, a, b);
    auto const once = read(product), twice = read(sum);
    for (std::size_t e = 0; e < once.size(); ++e) CHECK(twice[e] == 2 * once[e]);
}

TEST_CASE("factors and result may be turned") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    using A = L<f32, Dim<k, dynamic, rows>, Dim<i, dynamic, columns>>;
    using B = L<f32, Dim<j, dynamic, columns>, Dim<k, dynamic, rows>>;
    using C = L<f32, Dim<i, dynamic, columns, rows>, Dim<j>>;
    auto const a = made<A>(context, {48, 24}, 1);
    auto const b = made<B>(context, {48, 48}, 2);
    check(multiply<C>(a, b), 48, true, true);
}

TEST_CASE("sums of bf16 are made in f32 and rounded once") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    using A = Left<bf16>;
    using B = Right<bf16>;
    using C = Result<bf16>;
    auto const a = made<A>(context, {192, 96}, 1);
    auto const b = made<B>(context, {96, 192}, 2);
    auto const c = multiply<C>(a, b);
    multiply_into(c, a, b);
    Holding const mine(C::value, c.extents(), mesh.axes(), world_rank());
    auto const found = read(c);
    for (std::size_t e = 0; e < found.size(); ++e) {
        auto const sum = static_cast<float>(wanted(mine.global(e) / 192, mine.global(e) % 192, 192, 96));
        CHECK(found[e] == static_cast<double>(static_cast<float>(bf16(static_cast<float>(bf16(sum)) + sum))));
    }
}

TEST_CASE("the gradients of a product are products of duals") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    using A = Layout<f64, Dims<Dim<i, dynamic, rows>, Dim<k>>, Replicated<columns>>;
    using B = Layout<f64, Dims<Dim<j, dynamic, columns>, Dim<k>>, Partial<rows>>;
    using C = Layout<f64, Dims<Dim<j>, Dim<i, dynamic, columns>>, Replicated<rows>>;
    auto const a = made<A>(context, {24, 6}, 1);
    auto const b = made<B>(context, {24, 6}, 2);
    auto const g = made<dual_t<C>>(context, {24, 24}, 3);
    auto const c = multiply<C>(a, b);
    auto const da = multiply_backward_a<A>(g, b);
    auto const db = multiply_backward_b<B>(a, g);
    auto const pair = [&](auto const& layout, auto const& x, auto const& y) {
        auto const extents = x.extents();
        return support::pairing(Holding(layout, extents, mesh.axes(), world_rank()), read(x), read(y));
    };
    double const law = pair(C::value, c, g);
    CHECK(law != 0);
    CHECK(pair(A::value, a, da) == law);
    CHECK(pair(B::value, b, db) == law);
}

TEST_CASE("matrices on another mesh are multiplied on the grid of their shape") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    using A = Layout<f64, Dims<Dim<k>, Dim<i, dynamic, columns>>, Partial<rows>>;
    using B = L<f64, Dim<k, dynamic, columns, rows>, Dim<j>>;
    for (std::size_t const inner : {48, 960}) {
        auto const shape = choose_grid(48, 48, inner, world_size());
        GridContext<Exec> const grid(MPI_COMM_WORLD, shape);
        auto a = made<A>(context, {inner, 48}, 1);
        if (context.coordinate<rows>() > 0) a.clear(); // the first rank's summand is the value
        auto const b = made<B>(context, {inner, 48}, 2);
        auto const c = multiply(grid, a, b);
        check(c, inner, true);

        // Shared out on the grid as its blocks ask, the bytes are those of the closed form.
        auto const left = made<GridLeft<f64, i, k>>(grid.context(), {48, inner}, 1);
        auto const right = made<GridRight<f64, k, j>>(grid.context(), {inner, 48}, 2);
        observe::ledger().clear();
        check(multiply(grid, left, right), inner);
        CHECK(sent() == doctest::Approx(8 * shape.sent(48, 48, static_cast<double>(inner))));
        observe::ledger().clear();
        check(multiply<GridResult<f64, i, j>>(left, right), inner); // the roles are those of the grid, or as good
        CHECK(sent() <= 8 * shape.sent(48, 48, static_cast<double>(inner)) * (1 + 1e-9));
    }
}

TEST_CASE("matrices whose extents no grid divides are multiplied in uneven blocks") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    using A = L<f64, Dim<p, dynamic, rows>, Dim<s, dynamic, columns>>;
    using B = L<f64, Dim<s, dynamic, rows>, Dim<q, dynamic, columns>>;
    using C = L<f64, Dim<p, dynamic, rows>, Dim<q, dynamic, columns>>;
    for (std::size_t const inner : {std::size_t{2}, std::size_t{47}, std::size_t{961}}) {
        auto const a = made<A>(context, {53, inner}, 1);
        auto const b = made<B>(context, {inner, 49}, 2);
        check(multiply<C>(a, b), inner);
        auto const shape = choose_grid(53, 49, inner, world_size(), GridBlocks::uneven);
        CHECK(shape.ranks() == world_size());
        GridContext<Exec> const grid(MPI_COMM_WORLD, shape);
        check(multiply(grid, a, b), inner);
    }
    // In messages too, in panels of a few elements, where blocks and therefore panels of the ranks differ.
    auto const a = made<A>(context, {5, 47}, 1);
    auto const b = made<B>(context, {47, 3}, 2);
    auto const before = comm::forced_algorithm();
    for (auto const algorithm : {before, comm::Algorithm::mailbox}) {
        comm::forced_algorithm() = algorithm;
        check(multiply<C, Panels<64>>(a, b), 47);
        GridContext<Exec> const grid(MPI_COMM_WORLD, choose_grid(5, 3, 47, world_size(), GridBlocks::uneven));
        check(multiply<Panels<64>>(grid, a, b), 47);
    }
    comm::forced_algorithm() = before;
}

TEST_CASE("a product of the same shape takes no more memory the second time") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    using A = Left<f64>;
    using B = Right<f64>;
    using C = Result<f64>;
    auto const a = made<A>(context, {24, 24}, 1);
    auto const b = made<B>(context, {24, 24}, 2);
    auto c = multiply<C>(a, b);
    auto const allocations = observe::counters()[observe::Memory::activations].allocations;
    for (int again = 0; again < 3; ++again) {
        c = {};
        c = multiply<C>(a, b);
    }
    CHECK(observe::counters()[observe::Memory::activations].allocations == allocations);
}

TEST_CASE("products of empty matrices are empty, and those over no summands are zeros") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    using A = Left<f64>;
    using B = Right<f64>;
    using C = Result<f64>;
    for (auto const& [m, n, inner] : {std::array<std::size_t, 3>{0, 24, 24}, {24, 0, 24}, {24, 24, 0}, {0, 0, 0}}) {
        Tensor<A, Exec> const a(context, {m, inner});
        Tensor<B, Exec> const b(context, {inner, n});
        a.clear(), b.clear();
        auto const c = multiply<C>(a, b);
        CHECK(c.extents() == std::array{m, n});
        for (double const x : read(c)) CHECK(x == 0);
    }
}

TEST_CASE("panels that arrive in messages take no more memory than they may, those read in place none") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    using A = Left<f64>;
    using B = Right<f64>;
    using C = Result<f64>;
    constexpr std::size_t bytes = std::size_t{1} << 16;
    auto const a = made<A>(context, {384, 192}, 1);
    auto const b = made<B>(context, {192, 384}, 2);
    Tensor<C, Exec> const c(context, {384, 384});
    auto& memory = observe::counters()[observe::Memory::activations];
    auto const taken = [&] {
        memory.peak = memory.bytes;
        auto const before = memory.bytes;
        c.clear();
        multiply_into<Panels<bytes>>(c, a, b);
        check(c, 192);
        return static_cast<std::size_t>(memory.peak - before);
    };
    CHECK(taken() == 0);
    auto const before = std::exchange(comm::forced_algorithm(), comm::Algorithm::mailbox);
    auto const by_messages = taken();
    comm::forced_algorithm() = before;
    CHECK(by_messages <= bytes);
    if (world_size() > 1) CHECK(by_messages > bytes / 4);
}

TEST_CASE("a dry run of a product counts what a run does") {
    auto const mesh = mesh_of_all();
    using A = Left<f64>;
    using B = Right<f64>;
    using C = L<f64, Dim<i>, Dim<j, dynamic, columns, rows>>;
    struct Counted {
        double along_rows, along_columns, flops;
    };
    auto const count = [&](comm::Communicators& communicators) {
        Context<Exec> const context(communicators);
        Tensor<A, Exec> const a(context, {48, 96});
        Tensor<B, Exec> const b(context, {96, 48});
        a.clear(), b.clear();
        observe::ledger().clear();
        observe::counters().gemm_flops = 0;
        auto const c = multiply<C>(a, b);
        return Counted{observe::ledger().bytes("rows"), observe::ledger().bytes("columns"),
                       observe::counters().gemm_flops};
    };
    comm::Communicators real(MPI_COMM_WORLD, mesh);
    auto const run = count(real);
    observe::DryRun const dry;
    comm::Communicators imagined(mesh, world_rank(), world_size());
    auto const imagined_run = count(imagined);
    CHECK(imagined_run.along_rows == doctest::Approx(run.along_rows));
    CHECK(imagined_run.along_columns == doctest::Approx(run.along_columns));
    CHECK(imagined_run.flops == run.flops);
    CHECK(run.flops >= 2.0 * 48 * 48 * 96 / world_size());
}

TEST_CASE("factors that do not fit are refused on all ranks before anything is sent") {
    OnGrid const grid_of_all;
    auto const& [mesh, communicators, context] = grid_of_all;
    using A = L<f64, Dim<i>, Dim<k>>;
    using B = L<f64, Dim<k>, Dim<j>>;
    using C = L<f64, Dim<i>, Dim<j>>;
    Tensor<A, Exec> const a(context, {2, 3});
    Tensor<B, Exec> const b(context, {4, 5}), fits(context, {3, 5});
    Tensor<C, Exec> const c(context, {2, 2});
    CHECK_THROWS_WITH_AS((void)multiply<C>(a, b), "no product of f64[i:2, k:3] and f64[k:4, j:5]: k has two extents",
                         std::invalid_argument);
    CHECK_THROWS_AS(multiply_into(c, a, fits), std::invalid_argument);
    using Fixed = L<f64, Dim<i, 3>, Dim<j>>;
    CHECK_THROWS_WITH_AS((void)multiply<Fixed>(a, fits), "the product has i = 2 and its layout is f64[i:3, j:?]",
                         std::invalid_argument);
    if (world_size() > 1) {
        using Cut = L<f64, Dim<i>, Dim<j, dynamic, rows, columns>>;
        CHECK_THROWS_AS((void)multiply<Cut>(a, fits), std::invalid_argument);
    }
    using Square = L<f64, Dim<i>, Dim<k>>;
    Tensor<Square, Exec> const x(context, {2, 2});
    auto const y = x.as<L<f64, Dim<k>, Dim<j>>>();
    auto const z = x.as<L<f64, Dim<i>, Dim<j>>>();
    CHECK_THROWS_WITH_AS(multiply_into(z, x, y), "a product is not added to one of its factors: copy f64[i:2, j:2]",
                         std::invalid_argument);
}
