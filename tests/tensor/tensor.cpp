// ranks: 1 2
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/layout/relabel.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/tensor/stencil.hpp>

#include <support/on_mesh.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace own {
using pentad::f64;
using pentad::i64;
/// The largest of some positive values, and where it is.
struct Largest {
    f64 value;
    i64 place;
    KOKKOS_FUNCTION friend Largest operator+(Largest a, Largest b) {
        return a.value > b.value || (a.value == b.value && a.place < b.place) ? a : b;
    }
};
} // namespace own
template <>
struct pentad::Element<own::Largest> {
    static constexpr std::string_view name = "largest";
    using accumulator = own::Largest;
    static constexpr bool is_commutative = true;
};

using namespace support;

namespace {

struct cell {
    static constexpr std::string_view name = "cell";
    static constexpr bool has_uneven_blocks = true;
};
using Sharded = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<hidden>>>;
using Summands = Layout<f64, Dims<Dim<batch>, Dim<hidden>>, Partial<dp>>;
using Invariant = Layout<f64, Dims<Dim<batch>, Dim<hidden>>>;

} // namespace

TEST_CASE("a tensor that was moved from is empty, and its buffer is not written through it") {
    OnMesh const mesh({.dp = world_size()});
    Tensor<Summands, Exec> x(mesh.context, {2, 3});
    Kokkos::deep_copy(x.summands(), 1.0);
    auto const moved = std::move(x);
    CHECK(x.empty()); // NOLINT: that is what is tested
    CHECK_FALSE(moved.empty());
    Tensor<Summands, Exec> y(mesh.context, {2, 3});
    Kokkos::deep_copy(y.summands(), 1.0);
    auto const sum = redistribute<Invariant>(std::move(y));
    CHECK(y.empty()); // NOLINT
    CHECK(on_host(sum)(0) == world_size());
    auto z = moved;
    CHECK(z.array_data() == moved.array_data());
    auto const taken = std::move(z).template reinterpret_as<Invariant>();
    CHECK(z.empty()); // NOLINT
    CHECK(taken.data() == moved.array_data());
}

TEST_CASE(
    "a tensor that was moved from, or never made, is used by nothing: all ranks say so, also those without elements") {
    OnMesh const mesh({.dp = world_size()});
    using Cut = Layout<f64, Dims<Dim<cell, dynamic, dp>>>;
    using Whole = Layout<f64, Dims<Dim<cell>>>;
    using Cells = Layout<f64, Dims<Halo<Dim<cell, dynamic, dp>, 1>>>;
    Tensor<Cut, Exec> x(mesh.context, {1}), never; // of two ranks one has no element of x
    Tensor<stale_t<Cells>, Exec> cells(mesh.context, {8});
    auto const y = std::move(x);
    auto const kept = std::move(cells);
    std::string const moved =
        "f64[cell@dp:~1] is used after it was moved from, or before it was made: it has no memory";
    auto const refused = [](std::string const& text, auto const& use) {
        CHECK_THROWS_WITH_AS(use(), text.c_str(), std::logic_error);
    };
    refused(moved, [&] { (void)redistribute<Whole>(x); }); // NOLINT: that is what is tested
    refused(moved, [&] { (void)redistribute<Whole>(std::move(x)); });
    refused(moved, [&] { redistribute_into(y, x); });
    refused(moved, [&] { redistribute_into(x, y); });
    refused(moved, [&] { (void)Redistribution<Whole, Cut, Exec>(x); });
    refused(moved, [&] { (void)x.as<Cut>(); });
    refused(moved, [&] { x.clear(); });
    refused(moved, [&] { x.set(nullptr); });
    refused(moved, [&] { x.get(nullptr); });
    refused("f64[cell@dp:~8 (stale halo 1)] is used after it was moved from, or before it was made: it has no memory",
            [&] { (void)fill_halo_and_compute<Cells>(std::move(cells), [](auto const&, ElementBox const&) {}); });
    for (auto const& use :
         {std::function<void()>([&] { (void)cells.view(); }), std::function<void()>([&] { (void)cells.flat(); }),
          std::function<void()>([&] { (void)cells.data(); }), std::function<void()>([&] { (void)cells.array(); })})
        CHECK_THROWS_AS(use(), std::logic_error);
    refused("f64[cell@dp:~0] is used after it was moved from, or before it was made: it has no memory",
            [&] { (void)redistribute<Whole>(never); });
    CHECK(x.extents() == y.extents());
}

TEST_CASE("memory of a program's own is this rank's shard, row-major without gaps") {
    OnMesh const mesh({.dp = world_size()});
    std::size_t const rows = 4 / static_cast<std::size_t>(world_size());
    using Host = Kokkos::HostSpace;
    Kokkos::View<f64**, Kokkos::LayoutRight, Host> const right("right", rows, 3), few("few", rows, 2);
    Kokkos::View<f64*, Host> const list("list", 3 * rows), short_list("short list", 3 * rows - 1);
    Kokkos::View<f64**, Kokkos::LayoutRight, Host> const wide("wide", rows, 5);
    Kokkos::View<f64**, Kokkos::LayoutLeft, Host> const left("left", rows, 3);
    Kokkos::View<f64**, Kokkos::LayoutStride, Host> const strided(left), straight(right);
    auto const columns = Kokkos::subview(wide, Kokkos::ALL, std::pair(1, 4));
    auto const over = [&](auto const& memory) { return Tensor<Sharded, Exec>(mesh.context, {4, 3}, memory).data(); };
    CHECK(over(right) == right.data());
    CHECK(over(list) == list.data());
    CHECK(over(straight) == right.data());
    std::string const tensor = "f64[batch@dp:4, hidden:3]", of = std::to_string(rows);
    CHECK_THROWS_WITH_AS(
        over(few),
        ("memory of " + of + " x 2 elements for " + tensor + ", of which this rank holds " + of + " x 3").c_str(),
        std::invalid_argument);
    CHECK_THROWS_WITH_AS(over(short_list),
                         ("memory of " + std::to_string(3 * rows - 1) + " elements for " + tensor +
                          ", of which this rank holds " + of + " x 3")
                             .c_str(),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(over(strided),
                         ("memory for " + tensor + " is row-major without gaps, and this has stride " + of +
                          " where 1 is needed: copy it into a view with Kokkos::LayoutRight")
                             .c_str(),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(over(columns),
                         ("memory for " + tensor +
                          " is row-major without gaps, and this has stride 5 where 3 is needed: copy it into a view "
                          "with Kokkos::LayoutRight")
                             .c_str(),
                         std::invalid_argument);
    CHECK_THROWS_AS((Tensor<Sharded, Exec>(mesh.context, {4}, right)), std::invalid_argument);
}

TEST_CASE("a value is that of other names, and of nothing else") {
    using Cells = Halo<Dim<batch, dynamic, dp>, 2>;
    using Filled = Layout<f64, Dims<Cells, Dim<hidden>>>;
    constexpr auto error = []<class From, class To>(From, To) { return relabel_error(From::value, To::value); };
    constexpr auto none = RelabelError::none, shards = RelabelError::shards_differ,
                   partial = RelabelError::partial_differs, ghosts = RelabelError::ghosts_differ;
    CHECK(error(Sharded(), Layout<f64, Dims<Dim<seq, dynamic, dp>, Dim<ffn>>, Replicated<tp>>()) == none);
    CHECK(error(Sharded(), Invariant()) == shards);
    CHECK(error(Sharded(), Layout<f64, Dims<Dim<batch>, Dim<hidden, dynamic, dp>>>()) == shards);
    CHECK(error(Invariant(), Summands()) == partial);
    CHECK(error(Summands(), Invariant()) == partial);
    CHECK(error(Summands(), Layout<f64, Dims<Dim<seq>, Dim<hidden>>, Partial<dp>>()) == none);
    CHECK(error(Summands(), Layout<f64, Dims<Dim<seq>, Dim<hidden>>, PartialMax<dp>>()) == partial);
    CHECK(error(Summands(), Layout<f64, Dims<Dim<seq>, Dim<hidden>>, Partial<dp, tp>>()) == partial);
    CHECK(error(Filled(), stale_t<Filled>()) == none);
    CHECK(error(dual_t<Filled>(), stale_t<Filled>()) == none);
    CHECK(error(stale_t<Filled>(), Filled()) == ghosts);
    CHECK(error(Filled(), dual_t<Filled>()) == ghosts);
    CHECK(error(Filled(), Sharded()) == ghosts);
    CHECK(error(Filled(), Layout<f64, Dims<Halo<Dim<batch, dynamic, dp>, 2, Boundary::periodic>, Dim<hidden>>>()) ==
          ghosts);
    CHECK(error(Filled(), stale_t<Layout<f64, Dims<Halo<Dim<batch, dynamic, dp>, 1>, Dim<hidden>>>>()) == ghosts);
    CHECK(error(Sharded(), with_element_t<Sharded, f32>()) == RelabelError::elements_differ);
    CHECK(error(Sharded(), Layout<f64, Dims<Dim<batch, dynamic, dp>>>()) == RelabelError::ranks_differ);
}

TEST_CASE("a tensor's memory is taken as another layout only where the shards have the same shape") {
    OnMesh const mesh({.dp = world_size()});
    Tensor<Sharded, Exec> const x(mesh.context, {4, 3});
    if (world_size() == 1) {
        CHECK(x.reinterpret_as<Invariant>().data() == x.data());
    } else {
        CHECK_THROWS_WITH_AS((void)x.reinterpret_as<Invariant>(),
                             "f64[batch@dp:4, hidden:3] cannot be taken as f64[batch:4, hidden:3], whose shards have "
                             "another shape: redistribute it",
                             std::invalid_argument);
    }
}

TEST_CASE("where blocks may be uneven, those of ranks differ by one at most") {
    OnMesh const mesh({.dp = world_size()});
    using Cut = Layout<f64, Dims<Dim<cell, dynamic, dp>, Dim<hidden>>>;
    Tensor<Cut, Exec> x(mesh.context, {7, 2});
    CHECK(x.describe() == "f64[cell@dp:~7, hidden:2]");
    std::size_t const first = world_rank() == 0 ? 0 : 3, count = world_size() == 1 ? 7 : 3 + first / 3;
    CHECK(x.local() == std::array<std::size_t, 2>{count, 2});
    std::vector<f64> values(x.size());
    std::iota(values.begin(), values.end(), static_cast<f64>(2 * first));
    x.set(values.data());
    auto const whole = redistribute<Layout<f64, Dims<Dim<cell>, Dim<hidden>>, Replicated<dp>>>(x);
    for (std::size_t i = 0; i < 14; ++i) CHECK(on_host(whole)(i) == static_cast<f64>(i));
    CHECK(on_host(redistribute<Cut>(whole))(0) == static_cast<f64>(2 * first));
    Tensor<Cut, Exec> const few(mesh.context, {1, 2}); // the first rank of two has nothing
    CHECK(few.local()[0] == (world_rank() + 1 == world_size() ? 1 : 0));
    CHECK(redistribute<Layout<f64, Dims<Dim<cell>, Dim<hidden, dynamic, dp>>>>(few).local() ==
          std::array<std::size_t, 2>{1, 2 / static_cast<std::size_t>(world_size())});
}

TEST_CASE("a partial value is reduced by the operation of its elements") {
    OnMesh const mesh({.dp = world_size()});
    Tensor<Layout<own::Largest, Dims<Dim<hidden>>, Partial<dp>>, Exec> x(mesh.context, {2});
    std::array<own::Largest, 2> const mine{{{1.0 + world_rank(), world_rank()}, {5, world_rank()}}};
    x.set(mine.data());
    std::array<own::Largest, 2> found{};
    redistribute<Layout<own::Largest, Dims<Dim<hidden>>>>(x).get(found.data());
    CHECK(found[0].value == world_size());
    CHECK(found[0].place == world_size() - 1);
    CHECK(found[1].place == 0);
}

TEST_CASE("a tensor has an extent for each dimension") {
    OnMesh const mesh({.dp = world_size()});
    CHECK_THROWS_WITH_AS((Tensor<Invariant, Exec>(mesh.context, {8})),
                         "1 extents for f64[batch:?, hidden:?], which has 2 dimensions", std::invalid_argument);
    CHECK_THROWS_AS((Tensor<Invariant, Exec>(mesh.context, {8, 1, 1})), std::invalid_argument);
    CHECK(Tensor<Invariant, Exec>(mesh.context, {8, 2}).size() == 16);
}

TEST_CASE("a mesh that the compiler knows is in the type of tensors, and of what they become") {
    if (world_size() != 2) return;
    Mesh<Axis<dp, 2>> const mesh;
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    MeshContext<Mesh<Axis<dp, 2>>, Exec> const context(communicators, mesh);
    auto x = make_tensor<Summands>(context, {2, 3});
    Kokkos::deep_copy(x.summands(), 1.0);
    auto const sum = redistribute<Invariant>(std::move(x));
    static_assert(std::is_same_v<decltype(sum), Tensor<Invariant, Exec, Mesh<Axis<dp, 2>>> const>);
    Tensor<Invariant, Exec> const anywhere = sum; // what layers take
    CHECK(on_host(anywhere)(0) == 2);
    CHECK(anywhere.data() == sum.data());
    using Other = Mesh<Axis<tp, 2>>;
    CHECK_THROWS_WITH_AS((MeshContext<Other, Exec>(communicators, Other())),
                         "the context has another mesh than its communicators", std::invalid_argument);
}

TEST_CASE("leading dimensions are swapped, and columns cut out") {
    Exec const exec;
    Kokkos::View<int*, Exec> const in("in", 2 * 3 * 5 * 7), out("out", in.size()), cut("cut", 2 * 3 * 5);
    std::vector<int> numbers(in.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), in);
    std::copy(numbers.begin(), numbers.end(), host.data());
    Kokkos::deep_copy(in, host);
    pentad::detail::swap_leading(exec, in.data(), out.data(), 6, 5, 7);
    pentad::detail::copy_rows(exec, in.data() + 2, 7, cut.data(), 1, 30, 1);
    exec.fence();
    auto const swapped = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
    auto const column = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), cut);
    for (int i = 0; i < 6; ++i)
        for (int j = 0; j < 5; ++j) {
            for (int k = 0; k < 7; ++k) CHECK(swapped((j * 6 + i) * 7 + k) == (i * 5 + j) * 7 + k);
            CHECK(column(i * 5 + j) == (i * 5 + j) * 7 + 2);
        }
}

TEST_CASE("a second host thread is refused, until it takes over") {
    OnMesh const mesh({.dp = world_size()});
    Tensor<Summands, Exec> const x(mesh.context, {2, 3});
    Kokkos::deep_copy(x.summands(), 1.0);
    std::string tensor, collective;
    std::thread([&] {
        try {
            Tensor<Invariant, Exec> const y(mesh.context, {2, 3});
        } catch (std::logic_error const& error) {
            tensor = error.what();
        }
        try {
            comm::all_reduce(Exec(), mesh.context.along<dp>(), x.array_flat());
        } catch (std::logic_error const& error) {
            collective = error.what();
        }
        memory::drive_from_this_thread();
        comm::all_reduce(Exec(), mesh.context.along<dp>(), x.array_flat());
    }).join();
    memory::drive_from_this_thread();
    CHECK(tensor.starts_with("pentad: a second host thread makes tensors or communicates"));
    CHECK((world_size() == 1 || collective == tensor));
    CHECK(on_host(x)(0) == world_size());
}

TEST_CASE("a context knows its place by the tags of axes") {
    OnMesh const mesh({.dp = world_size()});
    CHECK(mesh.context.along<dp>().size() == world_size());
    CHECK(mesh.context.extent<dp>() == world_size());
    CHECK(mesh.context.coordinate<dp>() == world_rank());
}
