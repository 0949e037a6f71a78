#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/validator.hpp>

#include <algorithm>
#include <stdexcept>

using namespace pentad::pipeline;

namespace {

template <class Check>
void for_all_sizes(Check const& check) {
    for (int stages = 1; stages <= 8; ++stages)
        for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
            CAPTURE(stages);
            CAPTURE(micro_batches);
            check(stages, micro_batches);
        }
}

void accept(Schedule const& schedule) {
    for (int send_buffers : {1, 2, 1000}) {
        auto const verdict = validate(schedule, {.send_buffers = send_buffers, .steps = 2});
        CHECK_MESSAGE(!verdict.refusal, verdict.refusal->message());
    }
}

} // namespace

TEST_CASE("the schedules of two stages and two micro-batches are the ones of the papers") {
    CHECK(to_string(gpipe(2, 2)) == "gpipe: 2 stages, 2 micro-batches\n"
                                    "rank 0: F0 >a0 F1 >a1 <g0 B0 <g1 B1\n"
                                    "rank 1: <a0 F0 <a1 F1 B0 >g0 B1 >g1\n");
    CHECK(to_string(one_forward_one_backward(2, 3)) == "1f1b: 2 stages, 3 micro-batches\n"
                                                       "rank 0: F0 >a0 F1 >a1 <g0 B0 F2 >a2 <g1 B1 <g2 B2\n"
                                                       "rank 1: <a0 F0 B0 >g0 <a1 F1 B1 >g1 <a2 F2 B2 >g2\n");
    CHECK(to_string(forward_only(2, 2)) == "forward-only: 2 stages, 2 micro-batches\n"
                                           "rank 0: F0 >a0 F1 >a1\n"
                                           "rank 1: <a0 F0 <a1 F1\n");
    CHECK(to_string(gpipe(1, 2)) == "gpipe: 1 stages, 2 micro-batches\nrank 0: F0 F1 B0 B1\n");
}

TEST_CASE("GPipe is accepted at every size and holds every micro-batch on every rank") {
    for_all_sizes([](int stages, int micro_batches) {
        auto const schedule = gpipe(stages, micro_batches);
        accept(schedule);
        CHECK(validate(schedule).peak_in_flight == std::vector<int>(static_cast<std::size_t>(stages), micro_batches));
    });
}

TEST_CASE("1F1B is accepted at every size and stage s of p holds min(m, p - s)") {
    for_all_sizes([](int stages, int micro_batches) {
        auto const schedule = one_forward_one_backward(stages, micro_batches);
        accept(schedule);
        auto const peaks = validate(schedule).peak_in_flight;
        for (int stage = 0; stage < stages; ++stage)
            CHECK(peaks[static_cast<std::size_t>(stage)] == std::min(micro_batches, stages - stage));
    });
}

TEST_CASE("forwards alone are accepted at every size and hold one micro-batch") {
    for_all_sizes([](int stages, int micro_batches) {
        auto const schedule = forward_only(stages, micro_batches);
        accept(schedule);
        CHECK(validate(schedule).peak_in_flight == std::vector<int>(static_cast<std::size_t>(stages), 1));
    });
}

TEST_CASE("a pipeline without stages or micro-batches is refused") {
    CHECK_THROWS_WITH_AS(gpipe(0, 1), "a pipeline needs at least one stage and one micro-batch, not 0 and 1",
                         std::invalid_argument);
    CHECK_THROWS_AS(one_forward_one_backward(2, 0), std::invalid_argument);
    CHECK_THROWS_AS(forward_only(-1, 1), std::invalid_argument);
}
