// Computations that take turns: each goes on while another waits for its exchange.
// ranks: 1 2 4
#include <doctest/doctest.h>

#include "comm/groups.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/comm/turns.hpp>
#include <pentad/layout/ml.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

using namespace comm_tests;
namespace comm = pentad::comm;

namespace {

struct World {
    comm::Communicators communicators{MPI_COMM_WORLD, Mesh<Axis<dp>>(world_size())};
    comm::Communicator const& group = communicators.along(AxisNames("dp"));

    /// The sum over the ranks of value + their number.
    [[nodiscard]] double sum(double value) const {
        Kokkos::View<double*, Exec> const x("x", 3);
        Kokkos::deep_copy(x, value + group.rank());
        comm::all_reduce(Exec(), group, x);
        return x(2);
    }
    [[nodiscard]] double expected(double value) const {
        int const n = world_size();
        return n * value + n * (n - 1) / 2.0;
    }
};

} // namespace

TEST_CASE("where one waits for an exchange the next goes on, in an order that no timing changes") {
    World const world;
    std::string order;
    std::vector<double> sums;
    comm::turns().take(3, [&](std::size_t i) {
        for (int round = 0; round < 2 + static_cast<int>(i); ++round) {
            order += static_cast<char>('a' + i);
            sums.push_back(world.sum(10.0 * static_cast<double>(i) + round) -
                           world.expected(10.0 * static_cast<double>(i) + round));
        }
        order += static_cast<char>('A' + i);
    });
    CHECK(sums == std::vector<double>(9, 0.0));
    CHECK(order == (world_size() > 1 ? "abcabcAbcBcC" : "aaAbbbBccccC"));
    CHECK(!comm::turns().is_on());
}

TEST_CASE("messages that are waited for let the other go on, and within a computation nothing takes turns") {
    World const world;
    int const n = world_size(), me = world.group.rank();
    std::string order;
    comm::turns().take(2, [&](std::size_t i) {
        Kokkos::View<double*, Exec> const out("out", 2), in("in", 2);
        Kokkos::deep_copy(out, 100.0 * static_cast<double>(i) + me);
        auto sent = comm::start_send(Exec(), world.group, out, (me + 1) % n, static_cast<int>(i));
        auto received = comm::start_receive(Exec(), world.group, in, (me + n - 1) % n, static_cast<int>(i));
        order += static_cast<char>('a' + i);
        received.wait();
        sent.wait();
        CHECK(in(1) == 100.0 * static_cast<double>(i) + (me + n - 1) % n);
        comm::turns().take(2, [&](std::size_t) { order += static_cast<char>('A' + i); });
    });
    CHECK(order == "abAABB");
}

TEST_CASE("a computation keeps its turn while it holds it") {
    World const world;
    std::string order;
    comm::turns().take(2, [&](std::size_t i) {
        order += static_cast<char>('a' + i);
        {
            comm::Turns::Hold const hold(comm::turns());
            CHECK(world.sum(1) == world.expected(1));
        }
        order += static_cast<char>('A' + i);
        CHECK(world.sum(2) == world.expected(2));
    });
    CHECK(order == "aAbB");
}

TEST_CASE("what one throws is thrown, when the others have been unwound") {
    World const world;
    struct Note {
        std::string* log;
        char what;
        ~Note() { *log += what; }
    };
    for (std::size_t const thrower : {0, 1, 2}) {
        CAPTURE(thrower);
        std::string log;
        auto const run = [&] {
            comm::turns().take(3, [&](std::size_t i) {
                Note const note{&log, static_cast<char>('a' + i)};
                (void)world.sum(0);
                if (i == thrower) throw std::runtime_error("of " + std::to_string(i));
                (void)world.sum(1);
                (void)world.sum(2);
            });
        };
        CHECK_THROWS_WITH_AS(run(), ("of " + std::to_string(thrower)).c_str(), std::runtime_error);
        if (world_size() > 1) CHECK(log.size() == 3);
        CHECK(!comm::turns().is_on());
        CHECK(world.sum(3) == world.expected(3)); // nothing is left under way
    }
}

TEST_CASE("one that throws before the others have begun ends them") {
    std::string log;
    auto const run = [&] {
        comm::turns().take(2, [&](std::size_t i) {
            log += static_cast<char>('a' + i);
            throw std::runtime_error("at once");
        });
    };
    CHECK_THROWS_WITH_AS(run(), "at once", std::runtime_error);
    CHECK(log == "a");
}

TEST_CASE("stacks are used again, with room for a deep call") {
    auto const deep = [](auto&& self, int depth) -> int {
        char volatile room[4096];
        room[0] = static_cast<char>(depth);
        return depth == 0 ? room[0] : self(self, depth - 1) + room[0] - static_cast<char>(depth);
    };
    for (int round = 0; round < 100; ++round)
        comm::turns().take(2, [&](std::size_t) {
            comm::turns().give_way();
            CHECK(deep(deep, 1000) == 0);
        });
}
