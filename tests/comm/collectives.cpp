// Every collective, blocking and not, against a serial reference that is computed from rank numbers.
// ranks: 1 2 3 4 6
#include <doctest/doctest.h>

#include "comm/groups.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/layout/ml.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// An element of 24 bytes.
struct Triple {
    double a, b, c;
    friend Triple operator+(Triple x, Triple y) { return {x.a + y.a, x.b + y.b, x.c + y.c}; }
    friend bool operator==(Triple const&, Triple const&) = default;
};
template <>
struct pentad::Element<Triple> {
    static constexpr std::string_view name = "triple";
    using accumulator = Triple;
    static constexpr bool is_commutative = true;
};

using namespace comm_tests;
namespace comm = pentad::comm;

namespace {

/// Element i on a world rank: small integers, so that sums are exact in every element type.
double at(int rank, std::size_t i) { return 3 * (rank + 1) + static_cast<double>(i % 7); }

constexpr bool blocking[]{true, false};

/// Runs the operation in its blocking or its non-blocking form.
template <class Blocking, class Start>
void run(bool blocks, Blocking&& block, Start&& start) {
    if (blocks) return block();
    auto request = start();
    request.wait();
    request.wait(); // waiting again is nothing
}

template <class K>
void reductions(Group const& group, std::size_t n) {
    using T = typename K::element;
    Exec const exec;
    auto const& members = group.members;
    double const bytes = static_cast<double>(n * sizeof(T));
    double const fraction = (static_cast<double>(group.size()) - 1) / static_cast<double>(group.size());
    auto const sum = [&](std::size_t i) {
        double total = 0;
        for (int const member : members) total += at(member, i);
        return total;
    };
    auto const largest = [&](std::size_t i) { return at(*std::max_element(members.begin(), members.end()), i); };
    auto const mine = [&](std::size_t i) { return at(world_rank(), i); };
    for (bool const blocks : blocking) {
        auto x = made<K>(n, mine);
        Watch const watch(group);
        run(
            blocks, [&] { comm::all_reduce(exec, group.comm, x.view); },
            [&] { return comm::start_all_reduce(exec, group.comm, x.view); });
        watch.check_collective(Operation::all_reduce, 2 * fraction * bytes, true);
        CHECK(values(x.view) == expected(n, sum));
        CHECK(frame_is_untouched(x));

        auto y = made<K>(n, mine);
        run(
            blocks, [&] { comm::all_reduce(exec, group.comm, y.view, Placement::partial_max); },
            [&] { return comm::start_all_reduce(exec, group.comm, y.view, Placement::partial_max); });
        CHECK(values(y.view) == expected(n, largest));

        for (int root = 0; root < group.comm.size(); ++root) {
            auto z = made<K>(n, mine);
            Watch const watch_root(group);
            run(
                blocks, [&] { comm::reduce(exec, group.comm, z.view, root); },
                [&] { return comm::start_reduce(exec, group.comm, z.view, root); });
            watch_root.check_collective(Operation::reduce, fraction * bytes, true);
            CHECK(values(z.view) == (group.comm.rank() == root ? expected(n, sum) : expected(n, mine)));
            CHECK(frame_is_untouched(z));
        }
    }
}

template <class From, class To>
void gathers(Group const& group, std::size_t n) {
    using T = typename From::element;
    Exec const exec;
    std::size_t const ranks = group.size();
    double const bytes = static_cast<double>(n * sizeof(T)), others = static_cast<double>(ranks - 1);
    auto const mine = [&](std::size_t i) { return at(world_rank(), i); };
    auto const untouched = [](std::size_t) { return 0; };
    auto const all = [&](std::size_t i) { return at(group.members[i / n], i % n); };
    for (bool const blocks : blocking) {
        auto in = made<From>(n, mine);
        auto out = made<To>(n * ranks, untouched);
        Watch const watch(group);
        run(
            blocks, [&] { comm::all_gather(exec, group.comm, in.view, out.view); },
            [&] { return comm::start_all_gather(exec, group.comm, in.view, out.view); });
        watch.check_collective(Operation::all_gather, others * bytes, true);
        CHECK(values(out.view) == expected(n * ranks, all));
        CHECK(frame_is_untouched(out));
        CHECK(values(in.view) == expected(n, mine));

        for (int root = 0; root < group.comm.size(); ++root) {
            bool const is_root = group.comm.rank() == root;
            auto gathered = made<To>(is_root ? n * ranks : 4, untouched);
            Watch const watch_root(group);
            run(
                blocks, [&] { comm::gather(exec, group.comm, in.view, gathered.view, root); },
                [&] { return comm::start_gather(exec, group.comm, in.view, gathered.view, root); });
            if (ranks == 1)
                watch_root.check_silence();
            else if (is_root) // it sends nothing, and is asked to do so once
                CHECK(pmpi::count().bytes == 0);
            else
                watch_root.check(Operation::gather, bytes, true);
            CHECK(values(gathered.view) == (is_root ? expected(n * ranks, all) : expected(4, untouched)));

            auto x = made<From>(n, mine);
            Watch const watch_broadcast(group);
            run(
                blocks, [&] { comm::broadcast(exec, group.comm, x.view, root); },
                [&] { return comm::start_broadcast(exec, group.comm, x.view, root); });
            watch_broadcast.check_collective(Operation::broadcast, bytes * others / static_cast<double>(ranks), true);
            CHECK(values(x.view) ==
                  expected(n, [&](std::size_t i) { return at(group.members[static_cast<std::size_t>(root)], i); }));
            CHECK(frame_is_untouched(x));
        }
    }
}

template <class From, class To>
void exchanges(Group const& group, std::size_t n) {
    using T = typename From::element;
    Exec const exec;
    std::size_t const ranks = group.size();
    double const bytes = static_cast<double>(n * sizeof(T)), others = static_cast<double>(ranks - 1);
    auto const zero = [](std::size_t) { return 0; };
    auto const mine = [&](std::size_t i) { return at(world_rank(), i); };
    for (bool const blocks : blocking) {
        auto in = made<From>(n * ranks, mine);
        auto piece = made<To>(n, zero);
        Watch const watch(group);
        run(
            blocks, [&] { comm::reduce_scatter(exec, group.comm, in.view, piece.view); },
            [&] { return comm::start_reduce_scatter(exec, group.comm, in.view, piece.view); });
        watch.check_collective(Operation::reduce_scatter, others * bytes, true);
        CHECK(values(piece.view) == expected(n, [&](std::size_t i) {
                  double sum = 0;
                  for (int const member : group.members) sum += at(member, group.rank() * n + i);
                  return sum;
              }));
        CHECK(frame_is_untouched(piece));
        CHECK(values(in.view) == expected(n * ranks, mine));

        auto out = made<To>(n * ranks, zero);
        Watch const watch_all(group);
        run(
            blocks, [&] { comm::all_to_all(exec, group.comm, in.view, out.view); },
            [&] { return comm::start_all_to_all(exec, group.comm, in.view, out.view); });
        watch_all.check_collective(Operation::all_to_all, others * bytes, false);
        CHECK(values(out.view) ==
              expected(n * ranks, [&](std::size_t i) { return at(group.members[i / n], group.rank() * n + i % n); }));
        CHECK(frame_is_untouched(out));
    }
}

/// How many elements member `from` sends to member `to`: some nothing.
MPI_Count load(std::size_t from, std::size_t to) { return static_cast<MPI_Count>((2 * from + 3 * to + 1) % 5); }

template <class From, class To>
void counted_exchanges(Group const& group) {
    using T = typename From::element;
    Exec const exec;
    std::size_t const ranks = group.size(), me = group.rank();
    std::vector<MPI_Count> sent(ranks), received(ranks);
    std::vector<MPI_Aint> offsets(2 * ranks);
    std::size_t all_sent = 0;
    std::vector<double> arriving;
    for (std::size_t r = 0; r < ranks; ++r) {
        sent[r] = load(me, r);
        received[r] = load(r, me);
        all_sent += static_cast<std::size_t>(sent[r]);
        std::size_t first = 0; // of what member r sends to this one
        for (std::size_t to = 0; to < me; ++to) first += static_cast<std::size_t>(load(r, to));
        for (std::size_t i = 0; i < static_cast<std::size_t>(load(r, me)); ++i)
            arriving.push_back(at(group.members[r], first + i));
    }
    for (std::size_t const room : {0, 3}) // views may be larger than what travels
        for (bool const blocks : blocking) {
            auto in = made<From>(all_sent + room, [&](std::size_t i) { return at(world_rank(), i); });
            auto out = made<To>(arriving.size() + room, [](std::size_t) { return 5; });
            Watch const watch(group);
            run(
                blocks, [&] { comm::all_to_all(exec, group.comm, in.view, sent, out.view, received, offsets); },
                [&] { return comm::start_all_to_all(exec, group.comm, in.view, sent, out.view, received, offsets); });
            auto const leaving = static_cast<double>((all_sent - static_cast<std::size_t>(sent[me])) * sizeof(T));
            watch.check_collective(Operation::all_to_all, leaving, false);
            auto result = arriving;
            result.insert(result.end(), room, 5);
            CHECK(values(out.view) == result);
            CHECK(frame_is_untouched(out));
        }
}

template <class From, class To>
void shifts(Group const& group, std::size_t n) {
    using T = typename From::element;
    Exec const exec;
    auto const ranks = static_cast<int>(group.size()), me = static_cast<int>(group.rank());
    for (int const steps : {1, -1, 2, ranks})
        for (bool const blocks : blocking) {
            auto out = made<From>(n, [&](std::size_t i) { return at(world_rank(), i); });
            auto in = made<To>(n, [](std::size_t) { return 0; });
            Watch const watch(group);
            run(
                blocks, [&] { comm::ring_shift(exec, group.comm, out.view, in.view, steps); },
                [&] { return comm::start_ring_shift(exec, group.comm, out.view, in.view, steps); });
            int const from = ((me - steps) % ranks + ranks) % ranks;
            CHECK(values(in.view) ==
                  expected(n, [&](std::size_t i) { return at(group.members[static_cast<std::size_t>(from)], i); }));
            CHECK(frame_is_untouched(in));
            if (from == me) // to itself: nothing leaves the rank
                CHECK(pmpi::count().bytes == 0);
            else
                watch.check(Operation::send, static_cast<double>(n * sizeof(T)), false, 2);
            if (from == me)
                for (auto const axis : group.comm.axes()) CHECK(observe::ledger().bytes(axis) == 0);
            if (ranks == 1) watch.check_silence();
        }
}

template <class From, class To>
void everything(std::size_t n) {
    for_each_algorithm([&] {
        for_each_group([&](Group const& group) {
            CAPTURE(group.comm.label());
            CAPTURE(group.size());
            reductions<From>(group, n);
            gathers<From, To>(group, n);
            exchanges<From, To>(group, n);
            shifts<From, To>(group, n);
        });
    });
}

} // namespace

TEST_CASE("collectives of every element type") {
    everything<Flat<f64>, Flat<f64>>(12);
    everything<Flat<f32>, Flat<f32>>(12);
    everything<Flat<bf16>, Flat<bf16>>(12);
    everything<Flat<i32>, Flat<i32>>(12);
    everything<Flat<i64>, Flat<i64>>(12);
}

TEST_CASE("collectives of Views of every rank and layout") {
    everything<Column<f64>, Left<f64>>(8);
    everything<Left<f64>, Matrix<f64>>(8);
    everything<Matrix<f64>, Box<f64>>(8);
    everything<Box<f64>, Column<f64>>(8);
}

TEST_CASE("collectives of nothing") {
    everything<Flat<f64>, Flat<f64>>(0);
    everything<Matrix<f64>, Left<f64>>(0);
}

TEST_CASE("all-to-all with counts of its own for every pair of ranks") {
    for_each_algorithm([] {
        for_each_group([](Group const& group) {
            CAPTURE(group.comm.label());
            counted_exchanges<Flat<f64>, Flat<f64>>(group);
            counted_exchanges<Flat<bf16>, Flat<bf16>>(group);
            counted_exchanges<Column<i64>, Column<i64>>(group);
        });
    });
}

TEST_CASE_TEMPLATE("log-sum-exp of floating-point elements", T, f64, f32, bf16) {
    double const tolerance = std::is_same_v<T, f64> ? 1e-14 : std::is_same_v<T, f32> ? 1e-6 : 0.02;
    for_each_group([&](Group const& group) {
        double const infinity = std::numeric_limits<double>::infinity();
        // Element 1 is minus infinity on the first rank, element 2 everywhere; element 3 would overflow exp.
        auto const x = [&](int rank, std::size_t i) {
            if (i == 2 || (i == 1 && rank == group.members[0])) return -infinity;
            return i == 3 ? 800.0 + rank : 0.25 * rank - static_cast<double>(i);
        };
        auto array = made<Flat<T>>(4, [&](std::size_t i) { return x(world_rank(), i); });
        comm::all_reduce(Exec(), group.comm, array.view, Placement::partial_log_sum_exp);
        for (std::size_t i = 0; i < 4; ++i) {
            double largest = -infinity, sum = 0;
            for (int const member : group.members) largest = std::max(largest, x(member, i));
            for (int const member : group.members) sum += largest == -infinity ? 0 : std::exp(x(member, i) - largest);
            double const want = largest + std::log(sum), got = static_cast<double>(array.view(i));
            if (largest == -infinity)
                CHECK(got == -infinity);
            else
                CHECK(std::abs(got - want) <= tolerance * std::max(1.0, std::abs(want)));
        }
    });
    CHECK_THROWS_WITH_AS((void)comm::reduction<i32>(Placement::partial_log_sum_exp),
                         "a partial log-sum-exp of i32 has no meaning", comm::Error);
}

TEST_CASE("an all-gather may find its own piece in place, and no other overlap") {
    for_each_group([](Group const& group) {
        std::size_t const n = 5, ranks = group.size();
        for (bool const blocks : blocking) {
            Kokkos::View<double*, Exec> const out("out", n * ranks);
            auto const in = Kokkos::subview(out, std::pair(group.rank() * n, (group.rank() + 1) * n));
            fill(in, [](std::size_t i) { return at(world_rank(), i); });
            run(
                blocks, [&] { comm::all_gather(Exec(), group.comm, in, out); },
                [&] { return comm::start_all_gather(Exec(), group.comm, in, out); });
            CHECK(values(out) == expected(n * ranks, [&](std::size_t i) { return at(group.members[i / n], i % n); }));
        }
        Kokkos::View<double*, Exec> const memory("memory", n * ranks + 1);
        auto const out = Kokkos::subview(memory, std::pair<std::size_t, std::size_t>(0, n * ranks));
        auto const in = Kokkos::subview(
            memory, std::pair<std::size_t, std::size_t>(group.rank() * n + 1, group.rank() * n + 1 + n));
        std::string const overlaps = " " + group.comm.where() + ": what is sent and what is received overlap in memory";
        CHECK_THROWS_WITH_AS(comm::all_gather(Exec(), group.comm, in, out), ("all_gather" + overlaps).c_str(),
                             comm::Error);
        CHECK_THROWS_WITH_AS((void)comm::start_all_gather(Exec(), group.comm, in, out),
                             ("all_gather" + overlaps).c_str(), comm::Error);
        CHECK_THROWS_WITH_AS(comm::reduce_scatter(Exec(), group.comm, out, in), ("reduce_scatter" + overlaps).c_str(),
                             comm::Error);
        CHECK_THROWS_WITH_AS(comm::all_to_all(Exec(), group.comm, out, out), ("all_to_all" + overlaps).c_str(),
                             comm::Error);
        CHECK_THROWS_WITH_AS(comm::ring_shift(Exec(), group.comm, out, out), ("send" + overlaps).c_str(), comm::Error);
    });
}

TEST_CASE("sizes that do not fit are refused with the axes, the ranks and the numbers") {
    for_each_group([](Group const& group) {
        std::size_t const ranks = group.size();
        Kokkos::View<double*, Exec> const three("three", 3), wrong("wrong", 3 * ranks + 1);
        auto const refusal = [&](char const* operation, std::size_t given, std::size_t received) {
            return std::string(operation) + " " + group.comm.where() + ": " + std::to_string(given) +
                   " elements are given and " + std::to_string(received) + " are to be received";
        };
        std::size_t const w = 3 * ranks + 1;
        CHECK_THROWS_WITH_AS(comm::all_gather(Exec(), group.comm, three, wrong), refusal("all_gather", 3, w).c_str(),
                             comm::Error);
        CHECK_THROWS_WITH_AS(comm::reduce_scatter(Exec(), group.comm, wrong, three),
                             refusal("reduce_scatter", w, 3).c_str(), comm::Error);
        CHECK_THROWS_WITH_AS(comm::all_to_all(Exec(), group.comm, three, wrong), refusal("all_to_all", 3, w).c_str(),
                             comm::Error);
        CHECK_THROWS_WITH_AS(comm::ring_shift(Exec(), group.comm, three, wrong), refusal("send", 3, w).c_str(),
                             comm::Error);
        if (group.rank() == 0)
            CHECK_THROWS_WITH_AS(comm::gather(Exec(), group.comm, three, wrong, 0), refusal("gather", 3, w).c_str(),
                                 comm::Error);
        std::vector<MPI_Count> const sent(ranks, 2), received(ranks, 2), few(ranks - 1, 2);
        std::vector<MPI_Aint> offsets(2 * ranks);
        Kokkos::View<double*, Exec> const enough("enough", 2 * ranks), short_of_one("short", 2 * ranks - 1);
        CHECK_THROWS_WITH_AS(comm::all_to_all(Exec(), group.comm, enough, sent, short_of_one, received, offsets),
                             refusal("all_to_all", 2 * ranks, 2 * ranks - 1).c_str(), comm::Error);
        CHECK_THROWS_AS(comm::all_to_all(Exec(), group.comm, enough, few, enough, received, offsets), comm::Error);
    });
}

TEST_CASE("an error of MPI names the call, the axes and the ranks") {
    if (world_size() == 1) return;
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>, Axis<tp>>(world_size(), 1));
    auto const& group = communicators.along(AxisNames("dp"));
    Kokkos::View<double*, Exec> const x("x", 3);
    std::string text;
    try {
        comm::reduce(Exec(), group, x, world_size());
    } catch (comm::Error const& error) {
        text = error.what();
    }
    std::string const head = "MPI_Ireduce over dp (rank " + std::to_string(world_rank()) + " of " +
                             std::to_string(world_size()) + ") failed: ";
    CHECK(text.substr(0, head.size()) == head);
    CHECK_THROWS_WITH_AS(comm::broadcast(Exec(), group, x, world_size()),
                         ("broadcast " + group.where() + ": there is no rank " + std::to_string(world_size())).c_str(),
                         comm::Error);
    CHECK_THROWS_WITH_AS((void)communicators.along(AxisNames("dp", "tp", "cp")), "the mesh has no axis named cp",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(comm::Communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(world_size() + 1)),
                         ("the mesh has " + std::to_string(world_size() + 1) + " ranks and the communicator " +
                          std::to_string(world_size()))
                             .c_str(),
                         std::invalid_argument);
}

TEST_CASE("pieces of different sizes are gathered") {
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(world_size()));
    auto const& group = communicators.along(AxisNames("dp"));
    auto const ranks = static_cast<std::size_t>(world_size()), me = static_cast<std::size_t>(world_rank());
    std::vector<MPI_Count> counts;
    for (std::size_t i = 0; i < ranks; ++i) counts.push_back(static_cast<MPI_Count>(3 * i)); // the first has none
    std::size_t const all = 3 * ranks * (ranks - 1) / 2;
    Kokkos::View<double*, Exec> const in("in", 3 * me), out("out", all + 1);
    Kokkos::deep_copy(in, static_cast<double>(me));
    Kokkos::deep_copy(out, -1.0);
    pentad::observe::ledger().clear();
    comm::all_gather(Exec(), group, in, out, counts);
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
    std::size_t at = 0;
    for (std::size_t i = 0; i < ranks; ++i)
        for (std::size_t j = 0; j < 3 * i; ++j) CHECK(host(at++) == static_cast<double>(i));
    CHECK(host(all) == -1);
    CHECK(pentad::observe::ledger().bytes("dp") == doctest::Approx(static_cast<double>(8 * 3 * me * (ranks - 1))));
    counts.pop_back();
    CHECK_THROWS_AS(comm::all_gather(Exec(), group, in, out, counts), comm::Error);
}

TEST_CASE("a shift along an open row of ranks ends there") {
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(world_size()));
    auto const& group = communicators.along(AxisNames("dp"));
    Kokkos::View<double*, Exec> const out("out", 2), in("in", 2);
    for (int const steps : {1, -1, 2}) {
        Kokkos::deep_copy(out, 1.0 + world_rank());
        Kokkos::deep_copy(in, -1.0);
        comm::ring_shift(Exec(), group, out, in, steps, 0, Boundary::open);
        auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), in);
        int const from = world_rank() - steps;
        CHECK(host(1) == (from >= 0 && from < world_size() ? 1.0 + from : -1.0));
    }
}

TEST_CASE("a program's own communicators along the axes give the ranks their places") {
    if (world_size() != 6) return;
    // Ranks in an order of their own: rank r is at place 5 - r of a mesh of 2 x 3.
    int const place = 5 - world_rank(), row = place / 3, column = place % 3;
    MPI_Comm along_rows = MPI_COMM_NULL, along_columns = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, column, row, &along_rows);
    MPI_Comm_split(MPI_COMM_WORLD, row, column, &along_columns);
    using M = Mesh<Axis<dp>, Axis<tp>>;
    {
        comm::Communicators communicators(MPI_COMM_WORLD, M(2, 3), {{"tp", along_columns}, {"dp", along_rows}});
        CHECK(communicators.world().rank() == place);
        CHECK(communicators.coordinate("dp") == row);
        CHECK(communicators.coordinate("tp") == column);
        auto x = made<Flat<f64>>(1, [&](std::size_t) { return static_cast<double>(row); });
        comm::all_reduce(Exec(), communicators.along(AxisNames("dp")), x.view);
        CHECK(x.view(0) == 1);
    }
    auto const refused = [&](M const& mesh, std::initializer_list<comm::AxisCommunicator> given, char const* sentence) {
        CHECK_THROWS_WITH_AS(comm::Communicators(MPI_COMM_WORLD, mesh, given), sentence, std::invalid_argument);
    };
    refused(M(2, 3), {{"dp", along_rows}}, "there is no communicator for mesh axis tp");
    refused(M(2, 3), {{"dp", along_columns}, {"tp", along_rows}},
            "the communicator for mesh axis dp has 3 ranks and the axis 2");
    refused(M(2, 3), {{"dp", along_rows}, {"tp", along_columns}, {"cp", along_rows}},
            "there is a communicator for cp, which is no axis of the mesh");
    MPI_Comm neighbours = MPI_COMM_NULL; // in both rows the first of two is the one of column 0
    MPI_Comm_split(MPI_COMM_WORLD, column == 2 ? 2 : row, place, &neighbours);
    refused(M(2, 3), {{"dp", neighbours}, {"tp", along_columns}},
            "two ranks have the same place in the given communicators");
    MPI_Comm crossed = MPI_COMM_NULL; // rows meet, but in another column
    MPI_Comm_split(MPI_COMM_WORLD, (column + row) % 3, row, &crossed);
    refused(M(2, 3), {{"dp", crossed}, {"tp", along_columns}},
            "the communicator for mesh axis dp is not of ranks that differ along that axis only");
    for (auto* one : {&along_rows, &along_columns, &neighbours, &crossed}) MPI_Comm_free(one);
}

TEST_CASE("there is one communicator for each set of axes, made at its first use") {
    if (world_size() != 6) return;
    Mesh<Axis<dp>, Axis<cp>, Axis<tp>> const mesh(3, 1, 2);
    comm::Communicators communicators(MPI_COMM_WORLD, mesh.split<dp>(3));
    CHECK(&communicators.along(AxisNames("dp", "cp")) == &communicators.along(AxisNames("dp"))); // an axis of extent 1
    CHECK(&communicators.along(AxisNames("inner(dp)")) ==
          &communicators.along(AxisNames("dp"))); // a part that is the whole
    CHECK(communicators.along(AxisNames("cp")).size() == 1);
    CHECK(communicators.along(AxisNames()).size() == 1);
    auto const& both = communicators.along(AxisNames("tp", "dp"));
    CHECK(both.size() == 6);
    CHECK(both.label() == "tp.dp");
    CHECK(&communicators.along(AxisNames("tp", "cp", "dp")) == &both);
    CHECK(&communicators.along(AxisNames("dp", "tp")) != &both); // another order of the ranks
    CHECK(static_cast<std::size_t>(both.rank()) == communicators.shard_index(AxisNames("tp", "dp")));
    // The two ends of an axis of three; the middle does not take part.
    comm::Communicators not_split(MPI_COMM_WORLD, mesh);
    if (mesh.coordinate<dp>(world_rank()) != 1) {
        auto const& both_ends = not_split.along(AxisNames("ends(dp)"));
        CHECK(both_ends.size() == 2);
        auto x = made<Flat<f64>>(4, [](std::size_t i) { return at(world_rank(), i); });
        comm::all_reduce(Exec(), both_ends, x.view);
        auto const members = mesh.group<ends<dp>>(world_rank());
        CHECK(values(x.view) == expected(4, [&](std::size_t i) { return at(members[0], i) + at(members[1], i); }));
    }
}

TEST_CASE("a request may be moved, asked and dropped, and finishes either way") {
    for_each_group([](Group const& group) {
        if (group.size() == 1) return;
        auto const sum = [&](std::size_t i) {
            double total = 0;
            for (int const member : group.members) total += at(member, i);
            return total;
        };
        auto const mine = [](std::size_t i) { return at(world_rank(), i); };
        auto x = made<Column<f64>>(8, mine), y = made<Column<f64>>(8, mine), z = made<Column<f64>>(8, mine);
        {
            auto first = comm::start_all_reduce(Exec(), group.comm, x.view);
            auto moved = std::move(first);
            while (!moved.test()) {
            }
            CHECK(values(x.view) == expected(8, sum));
            CHECK(moved.test());
            moved =
                comm::start_all_reduce(Exec(), group.comm, y.view); // the finished one is given up, this one taken over
            moved = comm::start_all_reduce(Exec(), group.comm, z.view); // waits for y
            CHECK(values(y.view) == expected(8, sum));
        } // dropped: waits for z
        CHECK(values(z.view) == expected(8, sum));
    });
}

TEST_CASE("two messages of one pair of ranks are told apart by their tags") {
    for_each_group([](Group const& group) {
        if (group.size() < 2 || group.rank() > 1) return;
        auto first = made<Flat<f64>>(4, [](std::size_t i) { return 1.0 + static_cast<double>(i); });
        auto second = made<Flat<f64>>(4, [](std::size_t i) { return 10.0 + static_cast<double>(i); });
        if (group.rank() == 0) {
            auto one = comm::start_send(Exec(), group.comm, first.view, 1, 7);
            comm::send(Exec(), group.comm, second.view, 1, 8);
            one.wait();
        } else {
            auto a = made<Left<f64>>(4, [](std::size_t) { return 0; }),
                 b = made<Left<f64>>(4, [](std::size_t) { return 0; });
            auto late = comm::start_receive(Exec(), group.comm, b.view, 0, 8);
            comm::receive(Exec(), group.comm, a.view, 0, 7);
            late.wait();
            CHECK(values(a.view) == values(first.view));
            CHECK(values(b.view) == values(second.view));
        }
    });
}

TEST_CASE("a rank sends to itself, also where it is alone") {
    for_each_group([](Group const& group) {
        auto const out = made<Flat<f64>>(4, [](std::size_t i) { return world_rank() + 0.5 * static_cast<double>(i); }),
                   in = made<Flat<f64>>(4, [](std::size_t) { return 0; });
        observe::ledger().clear();
        auto arriving = comm::start_receive(Exec(), group.comm, in.view, group.comm.rank());
        comm::send(Exec(), group.comm, out.view, group.comm.rank());
        arriving.wait();
        CHECK(values(in.view) == values(out.view));
        CHECK(observe::ledger().bytes("dp") + observe::ledger().bytes("cp") + observe::ledger().bytes("tp") == 0);
    });
}

TEST_CASE("minima, complex sums, and what has no meaning") {
    for_each_group([](Group const& group) {
        double smallest = world_rank(), sum = 0;
        for (int const member : group.members) {
            smallest = std::min<double>(smallest, member);
            sum += member;
        }
        for (auto const algorithm : {comm::Algorithm::automatic, comm::Algorithm::mpi}) {
            comm::forced_algorithm() = algorithm;
            auto const x = made<Flat<i32>>(300, [](std::size_t) { return world_rank(); });
            comm::all_reduce(Exec(), group.comm, x.view, Placement::partial_min);
            CHECK(values(x.view) == std::vector<double>(300, smallest));
            Kokkos::View<std::complex<f64>*, Exec> const z("z", 300);
            for (std::size_t i = 0; i < z.size(); ++i) z(i) = {1.0 * world_rank(), 2.0 * static_cast<double>(i)};
            comm::all_reduce(Exec(), group.comm, z);
            CHECK(z(299) == std::complex<f64>(sum, 598.0 * static_cast<double>(group.size())));
            if (group.size() > 1) {
                CHECK_THROWS_WITH_AS(comm::all_reduce(Exec(), group.comm, z, Placement::partial_max),
                                     "a partial max of c128 has no meaning", comm::Error);
                CHECK_THROWS_WITH_AS(comm::all_reduce(Exec(), group.comm, x.view, Placement::partial_log_sum_exp),
                                     "a partial log-sum-exp of i32 has no meaning", comm::Error);
            }
        }
        comm::forced_algorithm() = comm::Algorithm::automatic;
    });
}

TEST_CASE("elements whose size does not divide a line of cache are summed whole") {
    for_each_group([](Group const& group) {
        std::size_t const ranks = group.size(), each = 3000;
        double sum = 0;
        for (int const member : group.members) sum += member;
        for (auto const algorithm :
             {comm::Algorithm::automatic, comm::Algorithm::mailbox, comm::Algorithm::process, comm::Algorithm::mpi}) {
            comm::forced_algorithm() = algorithm;
            Kokkos::View<Triple*, Exec> const all("all", each * ranks), part("part", each);
            for (std::size_t i = 0; i < all.size(); ++i) all(i) = {1.0 * world_rank(), 1.0 * static_cast<double>(i), 1};
            comm::reduce_scatter(Exec(), group.comm, all, part);
            comm::all_reduce(Exec(), group.comm, all);
            auto const n = static_cast<double>(ranks);
            bool is_right = true;
            for (std::size_t i = 0; i < all.size(); ++i)
                is_right = is_right && all(i) == Triple{sum, n * static_cast<double>(i), n};
            for (std::size_t i = 0; i < each; ++i)
                is_right = is_right && part(i) == Triple{sum, n * static_cast<double>(group.rank() * each + i), n};
            CHECK(is_right);
        }
        comm::forced_algorithm() = comm::Algorithm::automatic;
    });
}

TEST_CASE("reductions give the same bits every time") {
    for_each_group([](Group const& group) {
        auto const uneven = [](std::size_t i) { return std::sin(static_cast<double>(i) + 1.7 * world_rank()); };
        auto first = made<Flat<f64>>(1000, uneven);
        comm::all_reduce(Exec(), group.comm, first.view);
        for (int repeat = 0; repeat < 3; ++repeat) {
            auto again = made<Flat<f64>>(1000, uneven);
            comm::all_reduce(Exec(), group.comm, again.view);
            CHECK(values(again.view) == values(first.view));
        }
    });
}
