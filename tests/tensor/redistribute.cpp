// ranks: 2 3 4 6
//
// Redistribution between every two layouts of sums over one axis and over two: the value stays, the gradient's plan
// is the adjoint, the bytes are those of the plan.
#include <doctest/doctest.h>

#include "support/holding.hpp"
#include "support/pairing.hpp"
#include "support/pmpi_counter.hpp"
#include "support/world.hpp"

#include <pentad/layout/cost.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/tensor/any_tensor.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/tensor/tensor.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using support::Holding;
using support::pairing;
using support::shard;
using support::world_rank;
using support::world_size;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Numbers = std::vector<double>;

// The first and the third of four dimensions are sharded: pieces are whole blocks in one, and strided in the other.
constexpr std::array<std::size_t, 4> extents{12, 2, 12, 3};
template <class First, class Second, class... States>
using Of = Layout<f64, Dims<First, Dim<slot>, Second, Dim<hidden>>, States...>;
template <class... A>
using First = Dim<batch, dynamic, A...>;
template <class... A>
using Second = Dim<seq, dynamic, A...>;

template <class... Ls>
struct List {
    static constexpr std::size_t size = sizeof...(Ls);
    static constexpr std::array values{Ls::value...};
    static constexpr std::array duals{dual_t<Ls>::value...};
};
/// Each of two axes in one of five places; where both shard a dimension, in both orders.
template <class A, class B>
using Layouts =
    List<Of<First<A, B>, Second<>>, Of<First<B, A>, Second<>>, Of<First<>, Second<A, B>>, Of<First<>, Second<B, A>>,
         Of<First<A>, Second<B>>, Of<First<B>, Second<A>>, //
         Of<First<A>, Second<>, Partial<B>>, Of<First<A>, Second<>, Replicated<B>>, Of<First<A>, Second<>>,
         Of<First<B>, Second<>, Partial<A>>, Of<First<B>, Second<>, Replicated<A>>, Of<First<B>, Second<>>,
         Of<First<>, Second<A>, Partial<B>>, Of<First<>, Second<A>, Replicated<B>>, Of<First<>, Second<A>>,
         Of<First<>, Second<B>, Partial<A>>, Of<First<>, Second<B>, Replicated<A>>, Of<First<>, Second<B>>, //
         Of<First<>, Second<>, Partial<A, B>>, Of<First<>, Second<>, Partial<A>, Replicated<B>>,
         Of<First<>, Second<>, Partial<A>>, Of<First<>, Second<>, Partial<B>, Replicated<A>>,
         Of<First<>, Second<>, Replicated<A, B>>, Of<First<>, Second<>, Replicated<A>>,
         Of<First<>, Second<>, Partial<B>>, Of<First<>, Second<>, Replicated<B>>, Of<First<>, Second<>>>;
using All = Layouts<cp, tp>;
static_assert(All::size == 27);

struct Result {
    Numbers kept, given_away; ///< from a tensor that somebody else holds too, and from one that was moved
    Numbers into;             ///< memory that exists
    bool source_is_intact = false;
};
Numbers copy_of(Context<Exec> const& context, double const* data, std::size_t size) {
    Numbers numbers(size);
    memory::copy_to_host(context.exec(), numbers.data(), data, size * sizeof(f64));
    return numbers;
}
template <class From, class To>
Result run(Context<Exec> const& context, Numbers const& source) {
    Tensor<From, Exec> x(context, extents);
    memory::copy_from_host(context.exec(), x.array_data(), source.data(), source.size() * sizeof(f64));
    auto const kept = redistribute<To>(x);
    bool const source_is_intact = copy_of(context, x.array_data(), source.size()) == source;
    Tensor<To, Exec> const target(context, extents);
    redistribute_into(x, target);
    auto const given_away = redistribute<To>(std::move(x));
    return {copy_of(context, kept.array_data(), kept.size()),
            copy_of(context, given_away.array_data(), given_away.size()),
            copy_of(context, target.array_data(), target.size()), source_is_intact};
}

/// Table[i][j] redistributes from layout i to layout j.
using Run = Result (*)(Context<Exec> const&, Numbers const&);
template <class From, class... To>
constexpr std::array<Run, sizeof...(To)> row(List<To...>) {
    return {&run<From, To>...};
}
template <class... From>
constexpr auto table_of(List<From...> all) {
    return std::array{row<From>(all)...};
}
constexpr auto table = table_of(All());
using M = Mesh<Axis<cp>, Axis<tp>>;

constexpr std::size_t all_elements = 12 * 2 * 12 * 3;

/// The value of a tensor from what all ranks hold. Ranks that should hold the same must: `agree` tells.
Numbers whole(LayoutValue const& layout, M const& mesh, Numbers const& of_all_ranks, bool& agree) {
    Numbers value(all_elements);
    std::size_t at = 0;
    AxisNames same = layout.replicated;
    for (auto const axis : Holding(layout, extents, mesh.axes(), 0).invariant()) same.push(axis);
    for (int rank = 0; rank < mesh.size(); ++rank) {
        Holding const theirs(layout, extents, mesh.axes(), rank);
        if (theirs.is_first_along(same))
            for (std::size_t i = 0; i < theirs.size(); ++i) value[theirs.global(i)] += of_all_ranks[at + i];
        at += theirs.size();
    }
    // The same again by ranks that are not the first along those axes.
    std::size_t const size = Holding(layout, extents, mesh.axes(), 0).size();
    for (int rank = 0; rank < mesh.size(); ++rank) {
        int first = rank;
        for (auto const axis : same) {
            auto const along = find_axis(mesh.axes(), axis);
            first -= along.coordinate(first) * along.stride;
        }
        for (std::size_t i = 0; i < size; ++i)
            agree = agree && of_all_ranks[static_cast<std::size_t>(rank) * size + i] ==
                                 of_all_ranks[static_cast<std::size_t>(first) * size + i];
    }
    return value;
}
Numbers of_all_ranks(Numbers const& mine) {
    Numbers all(mine.size() * static_cast<std::size_t>(world_size()));
    auto const count = static_cast<int>(mine.size());
    PMPI_Allgather(mine.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, MPI_COMM_WORLD);
    return all;
}
std::size_t index_of(LayoutValue const& layout) {
    auto const text = to_string(layout);
    std::size_t i = 0;
    while (to_string(All::values[i]) != text) ++i;
    return i;
}

AnyTensor<f64, Exec> made(Context<Exec> const& context, LayoutValue const& layout, Numbers const& mine) {
    AnyTensor<f64, Exec> tensor(context, layout, extents);
    tensor.set(mine.data());
    return tensor;
}
Numbers numbers(AnyTensor<f64, Exec> const& tensor) {
    Numbers result(tensor.size());
    tensor.get(result.data());
    return result;
}

/// Every pair on a mesh.
void check_every_pair(M const& mesh) {
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    Context<Exec> const context(communicators);
    std::array<std::size_t, 27> dual{};
    for (std::size_t i = 0; i < 27; ++i) dual[i] = index_of(All::duals[i]);
    for (std::size_t i = 0; i < 27; ++i)
        for (std::size_t j = 0; j < 27; ++j) {
            auto const &from = All::values[i], &to = All::values[j];
            CAPTURE(to_string(from));
            CAPTURE(to_string(to));
            Holding const source(from, extents, mesh.axes(), world_rank()),
                target(to, extents, mesh.axes(), world_rank());
            auto const x = shard(source, 1);
            auto const ax = table[i][j](context, x);
            REQUIRE(ax.kept.size() == target.size());
            bool agree = true;
            CHECK(whole(to, mesh, of_all_ranks(ax.kept), agree) == whole(from, mesh, of_all_ranks(x), agree));
            CHECK(agree);
            CHECK(ax.kept == ax.given_away);
            CHECK(ax.kept == ax.into);
            CHECK(ax.source_is_intact);

            auto const y = shard(Holding(All::duals[j], extents, mesh.axes(), world_rank()), 2);
            auto const adjoint = table[dual[j]][dual[i]];
            CHECK(pairing(target, ax.kept, y) == pairing(source, x, adjoint(context, y).kept));

            // Both ways again, where the layouts are values.
            Edge const edge(from, to);
            auto const dual_from = pentad::dual(from), dual_to = pentad::dual(to);
            CHECK(dual_from == All::duals[i]);
            CHECK(numbers(edge.forward(made(context, from, x))) == ax.kept);
            CHECK(numbers(edge.backward(made(context, dual_to, y))) == adjoint(context, y).kept);
            CHECK(edge.is_nothing() == (i == j));

            auto const cost = cost_of(make_plan(from, to), from, extents, mesh.axes(), world_rank());
            for (auto const algorithm : {comm::Algorithm::automatic, comm::Algorithm::mpi}) {
                comm::forced_algorithm() = algorithm;
                observe::ledger().clear();
                pmpi::clear();
                (void)table[i][j](context, x); // three times
                for (auto const axis : {"cp", "tp"})
                    CHECK(observe::ledger().bytes(axis) == doctest::Approx(3 * cost.on(axis)));
            }
            comm::forced_algorithm() = comm::Algorithm::automatic;
            CHECK(pmpi::count().bytes == doctest::Approx(3 * cost.total()));
        }
}

template <class L>
Numbers numbers(Tensor<L, Exec> const& tensor) {
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), tensor.array_flat());
    Numbers result(tensor.size());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<double>(host(i));
    return result;
}
template <class L>
Tensor<L, Exec> made(Context<Exec> const& context, typename Tensor<L, Exec>::extents_type const& global,
                     Numbers const& mine) {
    Tensor<L, Exec> tensor(context, global);
    auto const host = Kokkos::create_mirror_view(tensor.array_flat());
    for (std::size_t i = 0; i < tensor.size(); ++i)
        host(i) = static_cast<typename L::element>(static_cast<float>(mine[i]));
    Kokkos::deep_copy(tensor.array_flat(), host);
    return tensor;
}

} // namespace

TEST_CASE("every pair of sum layouts: the value, the adjoint law <Ax, y> = <x, A'y>, the bytes") {
    if (world_size() <= 3) {
        check_every_pair(M(world_size(), 1));
        check_every_pair(M(1, world_size()));
        return;
    }
    M const mesh(2, world_size() / 2);
    check_every_pair(mesh);
    check_every_pair(mesh.ordered<tp, cp>());
    if (world_size() == 6) check_every_pair(M(3, 2));
}

TEST_CASE("a tensor whose layout is a value: made, taken as a type and back, moved, refused") {
    comm::Communicators communicators(MPI_COMM_WORLD, M(1, world_size()));
    Context<Exec> const context(communicators);
    auto const n = static_cast<std::size_t>(world_size());
    using Rows = Layout<f64, Dims<Dim<batch, dynamic, tp>, Dim<seq>>>;
    using Columns = Layout<f64, Dims<Dim<batch>, Dim<seq, dynamic, tp>>>;
    AnyTensor<f64, Exec> any(context, Rows::value, std::array{n, 2 * n});
    CHECK(any.describe() == "f64[batch@tp:" + std::to_string(n) + ", seq:" + std::to_string(2 * n) + "]");
    CHECK(any.size() == 2 * n);
    CHECK(any.rows().extent(0) == 1);
    CHECK(any.rows().extent(1) == 2 * n);
    auto* const data = any.data();
    auto const typed = any.as<Rows>();
    CHECK(typed.array_data() == data);
    CHECK_FALSE(any.block().sole_owner());
    CHECK_THROWS_WITH_AS((void)any.as<Columns>(),
                         (any.describe() + " is not of the layout f64[batch:?, seq@tp:?]: redistribute it").c_str(),
                         std::logic_error);
    AnyTensor<f64, Exec> const back = std::move(any).as<Rows>();
    CHECK(any.empty()); // NOLINT: what was moved from is empty
    CHECK(any.size() == 0);
    CHECK(back.data() == data);
    CHECK_THROWS_WITH_AS((void)any.layout(), "a tensor is used after it was moved from, or before it was made",
                         std::logic_error);
    CHECK(AnyTensor<f64, Exec>(Tensor<Rows, Exec>()).empty());
    CHECK(AnyTensor<f64, Exec>().as<Rows>().empty());
    // What a type refuses while compiling is refused here when it is made.
    CHECK_THROWS_WITH_AS((AnyTensor<f32, Exec>(context, Rows::value, std::array{n, n})),
                         "a tensor of f32 cannot have the layout f64[batch@tp:?, seq:?]", std::invalid_argument);
    CHECK_THROWS_WITH_AS((AnyTensor<f64, Exec>(context, Rows::value, std::array{n})),
                         "1 extents for f64[batch@tp:?, seq:?]", std::invalid_argument);
    CHECK_THROWS_AS((AnyTensor<f64, Exec>(context, Rows::value, std::array{n + 1, n})), std::invalid_argument);
    CHECK_THROWS_WITH_AS(Edge(Rows::value, Layout<f64, Dims<Dim<batch>, Dim<hidden>>>::value),
                         "the layouts have different dimensions: redistribution keeps the names and the order of the "
                         "dimensions: from f64[batch@tp:?, seq:?] to f64[batch:?, hidden:?]",
                         std::invalid_argument);
    CHECK_THROWS_AS((void)Edge(Rows::value, Columns::value)
                        .forward(AnyTensor<f64, Exec>(context, Columns::value, std::array{n, n})),
                    std::logic_error);
    CHECK_THROWS_AS((void)pentad::dual(Layout<f64, Dims<Dim<token>>, PartialMax<tp>>::value), std::invalid_argument);
}

TEST_CASE("partial maxima, minima and log-sum-exps are reduced to the value") {
    comm::Communicators communicators(MPI_COMM_WORLD, M(1, world_size()));
    Context<Exec> const context(communicators);
    double const rank = world_rank(), last = world_size() - 1;
    auto const max = made<Layout<f64, Dims<Dim<token>>, PartialMax<tp>>>(context, {2}, {rank, -rank});
    CHECK(numbers(redistribute<Layout<f64, Dims<Dim<token>>>>(max)) == Numbers{last, 0});
    CHECK(numbers(max) == Numbers{rank, -rank}); // somebody holds it
    auto const min = made<Layout<bf16, Dims<Dim<token>>, PartialMin<tp>>>(context, {2}, {rank, -rank});
    CHECK(numbers(redistribute<Layout<bf16, Dims<Dim<token>>>>(min)) == Numbers{0, -last});
    auto const lse = made<Layout<f32, Dims<Dim<token>>, PartialLogSumExp<tp>>>(context, {1}, {0});
    CHECK(numbers(redistribute<Layout<f32, Dims<Dim<token>>, Replicated<tp>>>(lse))[0] ==
          doctest::Approx(std::log(last + 1)));
}

TEST_CASE("elements other than f64 travel alike") {
    comm::Communicators communicators(MPI_COMM_WORLD, M(1, world_size()));
    Context<Exec> const context(communicators);
    auto const n = static_cast<std::size_t>(world_size()), me = static_cast<std::size_t>(world_rank());
    auto const check = [&]<class T>(T) {
        using Rows = Layout<T, Dims<Dim<batch, dynamic, tp>, Dim<seq>>>;
        using Columns = Layout<T, Dims<Dim<batch>, Dim<seq, dynamic, tp>>>;
        Numbers row(n), column(n);
        for (std::size_t i = 0; i < n; ++i) {
            row[i] = static_cast<double>(10 * me + i);
            column[i] = static_cast<double>(10 * i + me);
        }
        CHECK(numbers(redistribute<Columns>(made<Rows>(context, {n, n}, row))) == column);
        using Sum = Layout<T, Dims<Dim<seq>>, Partial<tp>>;
        double const ranks = static_cast<double>(n);
        CHECK(numbers(redistribute<Layout<T, Dims<Dim<seq, dynamic, tp>>>>(made<Sum>(context, {n}, row))) ==
              Numbers{5 * ranks * (ranks - 1) + ranks * static_cast<double>(me)});
    };
    check(f32());
    check(bf16());
    check(i32());
    check(i64());
}

TEST_CASE("factors of an axis, and its ends, are axes") {
    if (world_size() < 3) return;
    int const me = world_rank(), n = world_size();
    if (n % 2 == 0) {
        auto const mesh = M(1, n).split<tp>(2);
        comm::Communicators communicators(MPI_COMM_WORLD, mesh);
        Context<Exec> const context(communicators);
        auto const kv = static_cast<std::size_t>(n);
        using Sharded = Layout<f64, Dims<Dim<kv_heads, dynamic, outer<tp>, inner<tp>>>>;
        using Shared = Layout<f64, Dims<Dim<kv_heads, dynamic, outer<tp>>>, Replicated<inner<tp>>>;
        observe::ledger().clear();
        auto const shared = redistribute<Shared>(made<Sharded>(context, {kv}, {static_cast<double>(me)}));
        double const pair = 2 * (me / 2);
        CHECK(numbers(shared) == Numbers{pair, pair + 1});
        CHECK(observe::ledger().entry("tp", observe::Operation::all_gather).bytes == 8); // a part counts on its axis
        // The adjoint: the gradients of the ranks that share a head are added up.
        auto const gradient = made<dual_t<Shared>>(context, {kv}, {1.0 + me, 10.0 + me});
        double const sum = me % 2 == 0 ? 1.0 + me + 1 + me + 1 : 10.0 + me + 10 + me - 1;
        CHECK(numbers(redistribute<dual_t<Sharded>>(gradient)) == Numbers{sum});
        auto const outer_sum =
            made<Layout<f64, Dims<Dim<flat>>, Partial<outer<tp>>>>(context, {1}, {static_cast<double>(me)});
        double expected = 0;
        for (int r = me % 2; r < n; r += 2) expected += r;
        CHECK(numbers(redistribute<Layout<f64, Dims<Dim<flat>>>>(outer_sum)) == Numbers{expected});
    }
    Mesh<Axis<pp>> const pipeline(n);
    comm::Communicators communicators(MPI_COMM_WORLD, pipeline);
    if (me == 0 || me == n - 1) { // the stages between hold no such tensor
        Context<Exec> const context(communicators);
        observe::ledger().clear();
        auto const tied = made<Layout<f64, Dims<Dim<flat>>, Partial<ends<pp>>>>(context, {2}, {1.0 + me, 7});
        CHECK(numbers(redistribute<Layout<f64, Dims<Dim<flat>>>>(tied)) == Numbers{1.0 + n, 14});
        CHECK(observe::ledger().bytes("pp") == 16); // 2 x 1/2 of 16 bytes, on its axis
    }
}

TEST_CASE("a redistribution into memory that exists receives a gather in place") {
    comm::Communicators communicators(MPI_COMM_WORLD, M(1, world_size()));
    Context<Exec> const context(communicators);
    auto const n = static_cast<std::size_t>(world_size()), me = static_cast<std::size_t>(world_rank());
    using Whole = Layout<f64, Dims<Dim<flat>>>;
    using Shard = Layout<f64, Dims<Dim<flat, dynamic, tp>>>;
    Numbers all(3 * n);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i);
    auto const target = made<Whole>(context, {3 * n}, Numbers(3 * n, -1));
    auto const mine = Tensor<Shard, Exec>::unchecked(context, {3 * n}, target.block(), target.data() + 3 * me);
    for (std::size_t i = 0; i < 3; ++i) Kokkos::deep_copy(Kokkos::subview(mine.flat(), i), all[3 * me + i]);
    auto const held = observe::counters()[observe::Memory::activations].bytes;
    redistribute_into(mine, target);
    CHECK(numbers(target) == all);
    CHECK(observe::counters()[observe::Memory::activations].bytes == held);

    auto const sum = made<Whole>(context, {3 * n}, Numbers(3 * n, -1));
    redistribute_into(made<Layout<f64, Dims<Dim<flat>>, Partial<tp>>>(context, {3 * n}, all), sum);
    CHECK(numbers(sum)[1] == static_cast<double>(n));
}

TEST_CASE("a redistribution into memory that exists takes no other for its last step, unless it reads there") {
    comm::Communicators communicators(MPI_COMM_WORLD, M(1, world_size()));
    Context<Exec> const context(communicators);
    auto const n = static_cast<std::size_t>(world_size()), me = static_cast<std::size_t>(world_rank());
    using Rows = Layout<f64, Dims<Dim<batch, dynamic, tp>, Dim<seq>>>;
    using Columns = Layout<f64, Dims<Dim<batch>, Dim<seq, dynamic, tp>>>;
    using Whole = Layout<f64, Dims<Dim<batch>, Dim<seq>>>;
    using Sum = Layout<f64, Dims<Dim<batch>, Dim<seq>>, Partial<tp>>;
    auto const element = [](std::size_t row, std::size_t column) { return static_cast<double>(100 * row + column); };
    Numbers rows, columns, whole, own_columns;
    for (std::size_t i = 0; i < 2 * n; ++i)
        for (std::size_t j = 0; j < 3 * n; ++j) {
            whole.push_back(element(i, j));
            if (i / 2 == me) rows.push_back(element(i, j));
            if (j / 3 == me) columns.push_back(element(i, j));
            if (j / 3 == me) own_columns.push_back(static_cast<double>(n) * element(i, j));
        }
    auto& activations = observe::counters()[observe::Memory::activations];
    auto const check = [&]<class From, class To>(Tensor<From, Exec> const& from, Tensor<To, Exec> const& to,
                                                 Numbers const& expected, double shards) {
        auto const held = activations.bytes;
        activations.peak = held;
        redistribute_into(from, to);
        CHECK(numbers(to) == expected);
        CHECK(static_cast<double>(activations.peak - held) <= shards * static_cast<double>(to.size() * 8 + 256));
    };
    auto const of_rows = made<Rows>(context, {2 * n, 3 * n}, rows);
    auto const of_columns = made<Columns>(context, {2 * n, 3 * n}, Numbers(6 * n, -1));
    auto const of_whole = made<Whole>(context, {2 * n, 3 * n}, Numbers(6 * n * n, -1));
    bool const packs = !memory::runs_on_host<Exec>;
    check(of_rows, of_columns, columns, packs ? 2 : 0);
    check(of_columns, of_whole, whole, packs ? 1 : 0);
    check(of_whole, of_columns, columns, 0); // a slice
    check(made<Sum>(context, {2 * n, 3 * n}, whole), of_columns, own_columns,
          static_cast<double>(n)); // the pieces of a reduce-scatter
    // In place of its source.
    auto const memory = made<Rows>(context, {2 * n, 3 * n}, rows);
    auto const same = Tensor<Columns, Exec>::unchecked(context, {2 * n, 3 * n}, memory.block(), memory.data());
    check(memory, same, columns, packs ? 3 : 1);
}

TEST_CASE("a tensor knows its shard, shares its memory, and refuses extents that do not fit") {
    comm::Communicators communicators(MPI_COMM_WORLD, M(1, world_size()));
    Context<Exec> const context(communicators);
    auto const n = static_cast<std::size_t>(world_size());
    using L = Layout<f32, Dims<Dim<batch, 4>, Dim<seq, dynamic, tp>, Dim<hidden>>>;
    Tensor<L, Exec> const x(context, {4, 2 * n, 3});
    CHECK(x.local() == std::array<std::size_t, 3>{4, 2, 3});
    CHECK(x.size() == 24);
    CHECK(x.view().extent(1) == 2);
    CHECK(x.rows().extent(0) == 8);
    CHECK(x.rows<2>().extent(1) == 6);
    CHECK(x.describe() == "f32[batch:4, seq@tp:" + std::to_string(2 * n) + ", hidden:3]");
    CHECK(x.reinterpret_as<dual_t<L>>().data() == x.data());
    CHECK(x.block().sole_owner());
    auto const copy = x;
    CHECK(!x.block().sole_owner());
    CHECK((Tensor<L, Exec>().empty() && !copy.empty()));
    CHECK_THROWS_WITH_AS((Tensor<L, Exec>(context, {5, 2 * n, 3})), "batch = 5 where the layout has 4",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(
        (Tensor<L, Exec>(context, {4, 2 * n + 1, 3})),
        ("seq = " + std::to_string(2 * n + 1) + " is not divisible by tp = " + std::to_string(n)).c_str(),
        std::invalid_argument);
}
