// The second thread, which makes progress while the first computes: across nodes that are none.
// ranks: 2 4
#include <doctest/doctest.h>

#include "comm/groups.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/progress_thread.hpp>
#include <pentad/layout/ml.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

using namespace comm_tests;
namespace comm = pentad::comm;

namespace {

/// Needs no other rank; both threads write it, in turn.
struct Counting final : comm::Pending {
    int turns = 0;
    void begin() { turns = 0; }
    bool step() override {
        ++turns;
        return false;
    }
};

double compute_for(std::chrono::milliseconds time) {
    double sum = 0;
    for (auto const end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) sum += 1;
    return sum;
}

/// The world, of which each half is taken for a node.
struct TwoNodes {
    support::SimulatedNodes nodes{std::to_string(world_size() / 2)};
    comm::Communicators communicators{MPI_COMM_WORLD, Mesh<Axis<dp>>(world_size())};
    comm::Communicator const& group = communicators.along(AxisNames("dp"));
};

/// As a kernel does.
void compute_beside(std::chrono::milliseconds time) {
    observe::HostWork const work("test");
    compute_for(time);
}

} // namespace

TEST_CASE("what is under way goes on beside a computation") {
    TwoNodes const world;
    auto& counting = comm::progress().begin<Counting>();
    for (int round = 1; round <= 3; ++round) {
        int const before = counting.turns;
        compute_beside(std::chrono::milliseconds(100));
        CHECK(counting.turns > before);
        int const after = counting.turns;
        compute_for(std::chrono::milliseconds(20)); // not lent: nobody else touches it
        CHECK(counting.turns == after);
    }
    comm::progress().finish(&counting);
}

TEST_CASE("collectives that both threads advance give what they give otherwise") {
    TwoNodes const world;
    Exec const exec;
    for (std::size_t const n : {std::size_t{100}, std::size_t{100'000}})
        for (int round = 0; round < 5; ++round) {
            auto const ranks = static_cast<std::size_t>(world_size());
            Kokkos::View<float*, Exec> const sums("sums", n), parts("parts", n * ranks), part("part", n);
            Kokkos::deep_copy(sums, static_cast<float>(world_rank() + round));
            Kokkos::deep_copy(part, static_cast<float>(world_rank()));
            auto reduce = comm::start_all_reduce(exec, world.group, sums);
            auto gather = comm::start_all_gather(exec, world.group, part, parts);
            compute_beside(std::chrono::milliseconds(15));
            gather.wait();
            compute_beside(std::chrono::milliseconds(6));
            reduce.wait();
            std::size_t wrong = 0;
            auto const whole = static_cast<float>(world_size() * (world_size() - 1) / 2 + world_size() * round);
            for (std::size_t i = 0; i < n; ++i) wrong += sums(i) != whole ? 1 : 0;
            for (std::size_t i = 0; i < n * ranks; ++i) wrong += parts(i) != static_cast<float>(i / n) ? 1 : 0;
            CHECK(wrong == 0);
        }
}
