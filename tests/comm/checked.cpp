// Checked builds: what ranks are told that call different collectives, and that the group goes on afterwards; within a
// node, in two levels and through MPI. The case that stays_away.py runs ends with the job.
// ranks: 2 3 4
#ifndef PENTAD_CHECKED
#define PENTAD_CHECKED 1
#endif
#include <doctest/doctest.h>

#include "comm/worlds.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/view.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace comm_tests;
namespace comm = pentad::comm;

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Elements of one type for all cases: room for what any of them sends and receives.
template <class T>
View<T, 1, Exec> elements(std::size_t n) {
    static std::deque<std::vector<T>> memory;
    auto& values = memory.emplace_back(n);
    return View<T, 1, Exec>(values.data(), n);
}

/// A collective is carried out right.
void works(World const& world) {
    auto const x = elements<f64>(3);
    for (std::size_t i = 0; i < 3; ++i) x(i) = static_cast<double>(world.me + 1);
    comm::all_reduce(Exec(), world.comm, x);
    auto request = comm::start_all_reduce(Exec(), world.comm, x);
    request.wait();
    CHECK(x(2) == static_cast<double>(world.n * world.n * (world.n + 1) / 2));
}

/// The last rank calls `odd`, the others `usual`.
struct Difference {
    std::string odd_text, usual_text;
    std::function<void(World const&)> odd, usual;
};
std::vector<Difference> differences() {
    auto const n = static_cast<std::size_t>(world_size());
    Exec const exec;
    auto const x = elements<f32>(8 * n), y = elements<f32>(8 * n);
    auto const part = View<f32, 1, Exec>(y.data(), 8);
    auto const halves = elements<bf16>(6);
    auto const words = elements<std::uint16_t>(6);
    auto const whole = std::to_string(8 * n) + " x f32";
    auto const reduces = [=](World const& world) { comm::all_reduce(exec, world.comm, x); };
    return {
        {"all_gather of " + whole, "all_reduce of " + whole,
         [=](World const& world) { comm::all_gather(exec, world.comm, part, x); }, reduces},
        {"all_reduce of 8 x f32", "all_reduce of " + whole,
         [=](World const& world) { comm::all_reduce(exec, world.comm, part); }, reduces},
        {"all_reduce (partial max) of " + whole, "all_reduce of " + whole,
         [=](World const& world) { comm::all_reduce(exec, world.comm, x, Placement::partial_max); }, reduces},
        {"start_all_reduce of " + whole, "all_reduce of " + whole,
         [=](World const& world) { comm::start_all_reduce(exec, world.comm, x).wait(); }, reduces},
        {"all_reduce of 6 x u16", "all_reduce of 6 x bf16",
         [=](World const& world) { comm::all_reduce(exec, world.comm, words); },
         [=](World const& world) { comm::all_reduce(exec, world.comm, halves); }},
        {"broadcast of " + whole + " with root 1", "broadcast of " + whole + " with root 0",
         [=](World const& world) { comm::broadcast(exec, world.comm, x, 1); },
         [=](World const& world) { comm::broadcast(exec, world.comm, x, 0); }},
        {"reduce of " + whole + " with root 0", "gather of " + whole + " with root 0",
         [=](World const& world) { comm::reduce(exec, world.comm, x, 0); },
         [=](World const& world) { comm::gather(exec, world.comm, part, x, 0); }},
        {"start_all_to_all of " + whole, "start_reduce_scatter of " + whole,
         [=](World const& world) { comm::start_all_to_all(exec, world.comm, x, y).wait(); },
         [=](World const& world) { comm::start_reduce_scatter(exec, world.comm, x, part).wait(); }},
    };
}

/// f(world) where ranks share one node, where they lie on nodes of two and of one, and where MPI carries out all.
template <class F>
void for_each_world(F&& f) {
    for (char const* const ranks_per_node : {"1000", "2", "1"}) {
        CAPTURE(ranks_per_node);
        f(simulated(ranks_per_node));
    }
    comm::forced_algorithm() = comm::Algorithm::mpi;
    f(World());
    comm::forced_algorithm() = comm::Algorithm::automatic;
}

} // namespace

TEST_CASE("every rank is told who calls what, and the group goes on") {
    for_each_world([](World const& world) {
        for (auto const& difference : differences()) {
            bool const odd = world.me == world.n - 1;
            auto const why = message([&] { (odd ? difference.odd : difference.usual)(world); });
            std::string const last = std::to_string(world.n - 1), of = " of " + std::to_string(world.n);
            std::string const want =
                world.n == 2
                    ? "rank 0 of 2 calls " + difference.usual_text + ", rank 1 " + difference.odd_text
                    : "rank " + last + of + " calls " + difference.odd_text + ", the others " + difference.usual_text;
            CHECK(why.substr(why.find(" over dp: ") + 10) == want);
            works(world);
        }
    });
}

TEST_CASE("counts that do not fit are told to every rank") {
    for_each_world([](World const& world) {
        auto const n = world.n;
        auto const x = elements<f32>(8 * n), y = elements<f32>(8 * n);
        std::vector<MPI_Count> const two(n, 2);
        auto sent = two;
        if (world.me == 0) sent[1] = 3;
        std::vector<MPI_Aint> offsets(2 * n);
        auto const want =
            "all_to_all over dp: rank 0 of " + std::to_string(n) + " sends 3 x f32 to rank 1, which is to receive 2";
        CHECK(message([&] { comm::all_to_all(Exec(), world.comm, x, sent, y, two, offsets); }) == want);
        CHECK(message([&] {
                  auto request = comm::start_all_to_all(Exec(), world.comm, x, sent, y, two, offsets);
                  while (!request.test()) {
                  }
              }) == want);
        comm::all_to_all(Exec(), world.comm, x, two, y, two, offsets);
        works(world);
    });
}

TEST_CASE("the axes are compared") {
    using M = Mesh<Axis<dp>, Axis<tp>>;
    bool const odd = world_rank() == 0;
    comm::Communicators communicators(MPI_COMM_WORLD, odd ? M(1, world_size()) : M(world_size(), 1));
    auto const& group = communicators.along(AxisNames(odd ? "tp" : "dp"));
    auto const x = elements<f64>(5);
    auto const why = message([&] { comm::all_reduce(Exec(), group, x); });
    CHECK(why.find("rank 0 of " + std::to_string(world_size()) + " calls all_reduce of 5 x f64 over tp, ") !=
          std::string::npos);
    CHECK(why.find(world_size() == 2 ? "rank 1 all_reduce of 5 x f64 over dp"
                                     : "the others all_reduce of 5 x f64 over dp") != std::string::npos);
}

TEST_CASE("those that have come are told within a second, while others are still away") {
    if (world_size() < 3) return;
    for_each_world([](World const& world) {
        auto const x = elements<f64>(8);
        auto const one = View<f64, 1, Exec>(x.data(), 1);
        bool const late = world.me == 2;
        MPI_Barrier(MPI_COMM_WORLD);
        auto const begin = Clock::now();
        if (late) usleep(2'500'000);
        auto const why = message([&] { comm::all_reduce(Exec(), world.comm, world.me == 1 ? one : x); });
        if (!late) CHECK(seconds_since(begin) < 2);
        CHECK(why.find(" calls all_reduce of ") != std::string::npos);
        CHECK(why.find("rank 1") != std::string::npos);
        works(world);
    });
}

TEST_CASE("an error reaches whoever waits for the operation, and nobody else") {
    for_each_world([](World const& world) {
        auto const x = elements<f64>(8), y = elements<f64>(8), z = elements<f64>(8);
        for (std::size_t i = 0; i < 8; ++i) x(i) = y(i) = z(i) = 1;
        auto first = comm::start_all_reduce(Exec(), world.comm, x);
        auto wrong = comm::start_all_reduce(Exec(), world.comm, View<f64, 1, Exec>(y.data(), world.me == 0 ? 4 : 8));
        auto third = comm::start_all_reduce(Exec(), world.comm, z);
        comm::all_reduce(Exec(), world.comm, elements<f64>(3));
        third.wait();
        first.wait();
        CHECK(x(7) == static_cast<double>(world.n));
        CHECK(y(3) == 1); // was not begun
        CHECK(z(0) == static_cast<double>(world.n));
        CHECK_THROWS_AS(wrong.wait(), comm::Error);
        wrong.wait(); // it is over
        works(world);
    });
}

TEST_CASE("a started collective waits for nobody") {
    // Rank 0 starts one over all, then reduces over its pair; the others do these in the opposite order.
    if (world_size() != 4) return;
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>, Axis<tp>>(2, 2));
    auto const& all = communicators.along(AxisNames("dp", "tp"));
    auto const& pair = communicators.along(AxisNames("tp"));
    auto const x = elements<f64>(8), y = elements<f64>(8);
    for (std::size_t i = 0; i < 8; ++i) x(i) = y(i) = 1;
    if (all.rank() == 0) {
        auto request = comm::start_all_reduce(Exec(), all, x);
        comm::all_reduce(Exec(), pair, y);
        request.wait();
    } else {
        comm::all_reduce(Exec(), pair, y);
        auto request = comm::start_all_reduce(Exec(), all, x);
        request.wait();
    }
    CHECK(x(0) == 4);
    CHECK(y(0) == 2);
}

TEST_CASE("tools see the program's messages and not the comparison") {
    World const world;
    comm::forced_algorithm() = comm::Algorithm::mpi;
    pmpi::clear();
    comm::all_reduce(Exec(), world.comm, elements<f64>(8));
    comm::forced_algorithm() = comm::Algorithm::automatic;
    CHECK(pmpi::count().calls == 1);
}

TEST_CASE("PENTAD_TIMEOUT is a number of seconds") {
    for (char const* const text : {"", "none", "0", "-1", "1s", "inf", "nan"}) {
        setenv("PENTAD_TIMEOUT", text, 1);
        CHECK(message([] { (void)World(); }) ==
              "PENTAD_TIMEOUT=" + std::string(text) + ": it is a number of seconds, more than 0");
    }
    setenv("PENTAD_TIMEOUT", "2.5", 1);
    CHECK(comm::environment::timeout() == 2.5);
    unsetenv("PENTAD_TIMEOUT");
    CHECK(comm::environment::timeout() == 10);
}

// Rank 1 stays away: asleep, or in a call that nobody answers.
TEST_CASE("a rank stays away" * doctest::skip()) {
    World const world;
    auto const x = elements<f32>(256);
    comm::broadcast(Exec(), world.comm, x, 0);
    bool const receives = std::getenv("PENTAD_TEST_RECEIVES") != nullptr;
    if (world.me == 1 && receives) comm::receive(Exec(), world.comm, x, 0);
    if (world.me == 1) sleep(60);
    auto request = comm::start_all_reduce(Exec(), world.comm, x);
    request.wait();
}
