#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/simulator.hpp>

#include <stdexcept>

using namespace pentad::pipeline;

TEST_CASE("the bubble of GPipe and of 1F1B is (p-1)/(m+p-1), to the unit of time") {
    for (int p = 1; p <= 8; ++p)
        for (int m = 1; m <= 16; ++m)
            for (Times times : {Times{1, 2, 0}, Times{3, 3, 0}, Times{7, 5, 0}})
                for (auto const& schedule : {gpipe(p, m), one_forward_one_backward(p, m)}) {
                    CAPTURE(to_string(schedule));
                    auto const simulation = simulate(schedule, times);
                    Time const unit = times.forward + times.backward;
                    CHECK(simulation.makespan == (m + p - 1) * unit);
                    CHECK(simulation.bubble() ==
                          doctest::Approx(static_cast<double>(p - 1) / (m + p - 1)).epsilon(1e-12));
                    for (int rank = 0; rank < p; ++rank) {
                        auto const& times_of_rank = simulation.ranks[static_cast<std::size_t>(rank)];
                        CHECK(times_of_rank.busy == m * unit);
                        CHECK(times_of_rank.start == rank * times.forward);
                        CHECK(times_of_rank.end == simulation.makespan - rank * times.backward);
                    }
                }
}

TEST_CASE("messages lengthen GPipe by one trip there and one back for each hop") {
    for (int p = 1; p <= 6; ++p)
        for (int m = 1; m <= 8; ++m) CHECK(simulate(gpipe(p, m), {2, 4, 1}).makespan == (m + p - 1) * 6 + 2 * (p - 1));
}

TEST_CASE("forwards alone take m + p - 1 forwards") {
    CHECK(simulate(forward_only(4, 6), {5, 0, 0}).makespan == 9 * 5);
    CHECK(simulate(forward_only(4, 6), {5, 0, 0}).bubble() ==
          doctest::Approx(1 - 30.0 / 30)); // no rank waits inside its span
}

TEST_CASE("a schedule that the validator refuses is not timed") {
    auto schedule = gpipe(2, 1);
    schedule.instructions[0].pop_back();
    CHECK_THROWS_WITH_AS(simulate(schedule, {}),
                         "cannot time the schedule gpipe: rank 0: backward of micro-batch 0 on stage 0: is never done",
                         std::invalid_argument);
}
