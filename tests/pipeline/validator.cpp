#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/pipeline/validator.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace pentad::pipeline;

namespace {

/// A schedule by hand: the lines before the ranks, then the ranks.
Schedule by_hand(std::string_view head, std::vector<std::string> const& ranks) {
    std::string text = "schedule by-hand\n" + std::string(head) + "\n";
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        text += "rank " + std::to_string(rank) + ": " + ranks[rank] + "\n";
    return parse_schedule(text);
}

/// What is wrong, checked to be of a class; "" when nothing is.
std::string refusal_of(Schedule const& schedule, Fault fault = Fault::malformed, Machine machine = {}) {
    auto const verdict = validate(schedule, machine);
    if (!verdict.refusal) return "";
    CHECK(verdict.refusal->fault == fault);
    return verdict.refusal->message();
}
std::string refusal_of(std::string_view head, std::vector<std::string> const& ranks, Fault fault = Fault::malformed) {
    return refusal_of(by_hand(head, ranks), fault);
}

constexpr auto one = "micro-batches 1\nstages on ranks 0 1";
constexpr auto two = "micro-batches 2\nstages on ranks 0 1";
constexpr auto alone = "micro-batches 2\nstages on ranks 0";

} // namespace

TEST_CASE("schedules by hand are accepted") {
    CHECK(refusal_of(one, {"F0 >a0 <g0 B0", "<a0 F0 B0 >g0"}) == "");
    // Stages next to each other on one rank hand over without messages.
    CHECK(refusal_of("micro-batches 1\nstages on ranks 0 0", {"F0@0 F0@1 B0@1 B0@0"}) == "");
    // A backward in one and one in two parts.
    CHECK(refusal_of(alone, {"F0 F1 D0 B1 W0"}) == "");
    // A rank without a stage.
    CHECK(refusal_of("micro-batches 1\nstages on ranks 1", {"", "F0 B0"}) == "");
}

TEST_CASE("a pair is a forward before a backward of another micro-batch, of a synchronous schedule") {
    CHECK(refusal_of(alone, {"F0 F1& B0 B1"}) == "");
    CHECK(refusal_of(alone, {"F0 F1& D0 W0 B1"}) == "");
    CHECK(refusal_of("recomputes\n" + std::string(alone), {"F0 R0 F1& B0 R1 B1"}) == "");
    std::string const why = "is paired, but not a forward before a backward of another micro-batch";
    CHECK(refusal_of(alone, {"F0& B0 F1 B1"}, Fault::misplaced) ==
          "rank 0: forward of micro-batch 0 on stage 0: " + why);
    CHECK(refusal_of(alone, {"F0 F1 B0& B1"}, Fault::misplaced) ==
          "rank 0: backward of micro-batch 0 on stage 0: " + why);
    CHECK(refusal_of(alone, {"F0& F1 B0 B1"}, Fault::misplaced) ==
          "rank 0: forward of micro-batch 0 on stage 0: " + why);
    CHECK(refusal_of(alone, {"F0 B0 F1&"}, Fault::misplaced) == "rank 0: forward of micro-batch 1 on stage 0: " + why);
    CHECK(refusal_of("updates 2\nweight-versions 2\ndelay 1\n" + std::string(alone), {"F0 F1& B0 U0 B1 U1"},
                     Fault::misplaced) ==
          "rank 0: forward of micro-batch 1 on stage 0: is paired, but the schedule is not synchronous");
}

TEST_CASE("a pair waits for what both of it need") {
    // One after the other this runs: rank 1 needs the activation of 1 before it sends the gradient of 0.
    CHECK(refusal_of(two, {"F0 >a0 F1 >a1 <g0 B0 <g1 B1", "<a0 F0 <a1 F1 B0 >g0 B1 >g1"}) == "");
    CHECK(refusal_of(two, {"F0 >a0 <g0 F1& B0 >a1 <g1 B1", "<a0 F0 <a1 F1 B0 >g0 B1 >g1"}, Fault::deadlocked) ==
          "rank 0: forward of micro-batch 1 on stage 0: waits for ever for what it receives; rank 1 in forward of "
          "micro-batch 1 on stage 1");
    CHECK(refusal_of(two, {"F0 >a0 <g0 F1& B0 >a1 <g1 B1", "<a0 F0 B0 >g0 <a1 F1 B1 >g1"}) == "");
}

TEST_CASE("numbers that contradict each other are refused") {
    auto schedule = by_hand(one, {"F0 >a0 <g0 B0", "<a0 F0 B0 >g0"});
    auto const with = [&](auto change) {
        auto changed = schedule;
        change(changed);
        return refusal_of(changed, Fault::malformed);
    };
    CHECK(with([](Schedule& s) { s.micro_batches = 0; }) == "a schedule has at least one micro-batch of one slice");
    CHECK(with([](Schedule& s) { s.micro_batches = 2'000'000'000; }) ==
          "8 instructions are not a forward for each of 2 stages, 2000000000 micro-batches and 1 slices");
    CHECK(with([](Schedule& s) { s.placements = {}; }) == "a schedule has at least one stage");
    CHECK(with([](Schedule& s) { s.placements = {{0, 1}, {0}}; }) == "each placement has a rank for each stage");
    CHECK(with([](Schedule& s) { s.placements = {{0, 7}}; }) == "a stage is on rank 7, but there are 2");
    CHECK(with([](Schedule& s) { s.updates = 2; }) == "1 micro-batches cannot be shared out equally to 2 updates");
    CHECK(with([](Schedule& s) { s.placements.resize(100'000, s.placements[0]); }) ==
          "8 instructions are too few for 100000 placements of 2 stages and 1 updates");
    CHECK(with([](Schedule& s) { s.weight_versions = 0; }) == "a stage keeps at least one version of its weights");
    CHECK(with([](Schedule& s) { s.delay = {1}; }) == "each stage has a delay, or none");
    CHECK(with([](Schedule& s) { s.delay = {1, -1}; }) == "a delay is a number of updates, not negative");
    CHECK(with([](Schedule& s) { s.micro_batches = s.updates = 2, s.gathers = true; }) ==
          "parameters of which versions are kept are not gathered");
    CHECK(with([](Schedule& s) { s.purpose = Purpose::inference, s.reduces = true; }) ==
          "inference has no updates, no gradients to reduce and nothing to recompute");
}

TEST_CASE("what cannot be on a rank is refused") {
    auto const with = [](std::string const& first) {
        return refusal_of(one, {first + " >a0 <g0 B0", "<a0 F0 B0 >g0"}, Fault::misplaced);
    };
    CHECK(with("F0@1") == "rank 0: forward of micro-batch 0 on stage 1: that stage is on rank 1");
    CHECK(with("F0@2") == "rank 0: forward of micro-batch 0 on stage 2: there is no such stage");
    CHECK(with("F1") == "rank 0: forward of micro-batch 1 on stage 0: there is no such micro-batch");
    CHECK(with("F0.1") == "rank 0: forward of slice 1 of micro-batch 0 on stage 0: there is no such slice");
    CHECK(with("<a0") ==
          "rank 0: receive-activation of micro-batch 0 on stage 0: that stage has no other rank to do this with");
    CHECK(with("R0") == "rank 0: recompute of micro-batch 0 on stage 0: the schedule does not recompute");
    CHECK(with("U0") == "rank 0: optimizer-step 0 of stage 0: the schedule says that it has none");
    CHECK(with("S0@1") == "rank 0: reduce-gradients 0 of stage 1: the rank does not have that stage");
    CHECK(with("S0.1") == "rank 0: reduce-gradients 0 of stage 0: is for all slices, not for one");
    CHECK(with("G1") == "rank 0: gather-parameters 1 of stage 0: there is no such update");
    CHECK(refusal_of("inference\nmicro-batches 1\nstages on ranks 0", {"F0 B0"}, Fault::misplaced) ==
          "rank 0: backward of micro-batch 0 on stage 0: inference has no backward");
    // Micro-batch 1 takes the other placement.
    CHECK(refusal_of("micro-batches 2\nstages on ranks 0\nstages on ranks 1", {"F0 B0 F1 B1", ""}, Fault::misplaced) ==
          "rank 0: forward of micro-batch 1 on stage 0: that stage is on rank 1");
}

TEST_CASE("what is done twice is refused, and a backward in one counts for both parts") {
    CHECK(refusal_of(alone, {"F0 F0 B0 F1 B1"}, Fault::repeated) ==
          "rank 0: forward of micro-batch 0 on stage 0: is done twice");
    CHECK(refusal_of(alone, {"F0 B0 D0 F1 B1"}, Fault::repeated) ==
          "rank 0: backward-data of micro-batch 0 on stage 0: is done twice");
    CHECK(refusal_of(alone, {"F0 D0 B0 F1 B1"}, Fault::repeated) ==
          "rank 0: backward of micro-batch 0 on stage 0: is done twice");
    CHECK(refusal_of(alone, {"F0 B0 W0 F1 B1"}, Fault::repeated) ==
          "rank 0: backward-weight of micro-batch 0 on stage 0: is done twice");
    CHECK(refusal_of("micro-batches 1\nupdates 1\nstages on ranks 0", {"F0 B0 U0 U0"}, Fault::repeated) ==
          "rank 0: optimizer-step 0 of stage 0: is done twice");
}

TEST_CASE("what is never done is refused") {
    CHECK(refusal_of(one, {"F0 >a0 <g0 B0", "<a0 F0 B0"}, Fault::missing) ==
          "rank 1: send-gradient of micro-batch 0 on stage 1: is never done");
    CHECK(refusal_of(alone, {"F0 B0 F1"}, Fault::missing) ==
          "rank 0: backward of micro-batch 1 on stage 0: is never done");
    CHECK(refusal_of(alone, {"F0 B0 F1 D1"}, Fault::missing) ==
          "rank 0: backward-weight of micro-batch 1 on stage 0: is never done");
    CHECK(refusal_of("micro-batches 1\nrecomputes\nstages on ranks 0", {"F0"}, Fault::missing) ==
          "rank 0: backward of micro-batch 0 on stage 0: is never done");
    CHECK(refusal_of("micro-batches 1\nreduces\nstages on ranks 0", {"F0 B0"}, Fault::missing) ==
          "rank 0: reduce-gradients 0 of stage 0: is never done");
    // The copy on rank 1 has no micro-batch, but its part in the sum.
    CHECK(refusal_of("micro-batches 1\nreduces\nstages on ranks 0\nstages on ranks 1", {"F0 B0 S0", ""},
                     Fault::missing) == "rank 1: reduce-gradients 0 of stage 0: is never done");
}

TEST_CASE("what comes before something on its rank that it needs is refused") {
    CHECK(refusal_of(one, {"F0 >a0 <g0 B0", "F0 <a0 B0 >g0"}, Fault::disordered) ==
          "rank 1: forward of micro-batch 0 on stage 1: comes before the receive-activation");
    CHECK(refusal_of(one, {"F0 >a0 <g0 B0", "<a0 F0 >g0 B0"}, Fault::disordered) ==
          "rank 1: send-gradient of micro-batch 0 on stage 1: comes before the backward");
    CHECK(refusal_of(alone, {"F0 W0 D0 F1 B1"}, Fault::disordered) ==
          "rank 0: backward-weight of micro-batch 0 on stage 0: comes before the backward-data");
    CHECK(refusal_of("micro-batches 1\nrecomputes\nstages on ranks 0", {"F0 B0 R0"}, Fault::disordered) ==
          "rank 0: backward of micro-batch 0 on stage 0: comes before the recompute");
    CHECK(refusal_of("micro-batches 1\nstages on ranks 0 0", {"F0@1 F0@0 B0@1 B0@0"}, Fault::disordered) ==
          "rank 0: forward of micro-batch 0 on stage 1: comes before the forward of micro-batch 0 on stage 0");
    auto const sliced = "micro-batches 1\nslices 2\nstages on ranks 0";
    CHECK(refusal_of(sliced, {"F0.0 F0.1 B0.1 B0.0"}) == "");
    CHECK(
        refusal_of(sliced, {"F0.1 F0.0 B0.1 B0.0"}, Fault::disordered) ==
        "rank 0: forward of slice 1 of micro-batch 0 on stage 0: comes before the forward of micro-batch 0 on stage 0");
    CHECK(
        refusal_of(sliced, {"F0.0 F0.1 B0.0 B0.1"}, Fault::disordered) ==
        "rank 0: backward of micro-batch 0 on stage 0: comes before the backward of slice 1 of micro-batch 0 on stage "
        "0");
    CHECK(refusal_of(sliced, {"F0.0 B0.0 F0.1 B0.1"}, Fault::disordered) ==
          "rank 0: backward of micro-batch 0 on stage 0: comes before the forward of slice 1 of micro-batch 0 on stage "
          "0");
    auto const whole = "micro-batches 1\nupdates 1\ngathers\nreduces\nstages on ranks 0";
    CHECK(refusal_of(whole, {"G0 F0 B0 S0 U0"}) == "");
    CHECK(refusal_of(whole, {"F0 G0 B0 S0 U0"}, Fault::disordered) ==
          "rank 0: forward of micro-batch 0 on stage 0: comes before the gather-parameters");
    CHECK(refusal_of(whole, {"G0 F0 S0 B0 U0"}, Fault::disordered) ==
          "rank 0: reduce-gradients 0 of stage 0: comes before the last backward of the stage");
    CHECK(refusal_of(whole, {"G0 F0 B0 U0 S0"}, Fault::disordered) ==
          "rank 0: optimizer-step 0 of stage 0: comes before the reduce-gradients");
}

TEST_CASE("a backward that would see other weights than its forward, or too old or new ones, is refused") {
    auto const stepping = "micro-batches 2\nupdates 2\nstages on ranks 0";
    auto const delayed = "micro-batches 2\nupdates 2\nweight-versions 2\ndelay 1\nstages on ranks 0";
    CHECK(refusal_of(stepping, {"F0 B0 U0 F1 B1 U1"}) == "");
    CHECK(refusal_of(stepping, {"F0 F1 B0 U0 B1 U1"}, Fault::stale) ==
          "rank 0: forward of micro-batch 1 on stage 0: needs version 1 of the weights; there are 0 to 0");
    CHECK(refusal_of(delayed, {"F0 F1 B0 U0 B1 U1"}) == "");
    CHECK(refusal_of(delayed, {"F0 B0 U0 F1 B1 U1"}) == "");
    CHECK(refusal_of(delayed, {"F0 F1 B0 B1 U0 U1"}, Fault::disordered) ==
          "rank 0: backward of micro-batch 1 on stage 0: comes before optimizer-step 0, whose gradients it would join");
    CHECK(refusal_of(delayed, {"F0 B0 F1 U1 B1 U0"}, Fault::disordered) ==
          "rank 0: optimizer-step 1 of stage 0: comes before the last backward of the stage");
    // A copy may have no micro-batch in an update; its steps are in order all the same.
    CHECK(refusal_of("micro-batches 2\nupdates 2\nweight-versions 2\ndelay 1\nstages on ranks 0\nstages on ranks 1",
                     {"U1 F0 B0 U0", "U0 F1 B1 U1"},
                     Fault::disordered) == "rank 0: optimizer-step 1 of stage 0: comes before optimizer-step 0");
    CHECK(refusal_of("micro-batches 2\nupdates 2\ndelay 1\nstages on ranks 0", {"F0 F1 B0 U0 B1 U1"}, Fault::stale) ==
          "rank 0: backward of micro-batch 1 on stage 0: needs version 0 of the weights; there are 1 to 1");
    CHECK(validate(by_hand(delayed, {"F0 F1 B0 U0 B1 U1"})).weight_versions == std::vector{2});
}

TEST_CASE("receives that would take what is meant for others are refused") {
    CHECK(refusal_of(two, {"F0 >a0 F1 >a1 <g0 B0 <g1 B1", "<a1 F1 <a0 F0 B0 >g0 B1 >g1"}, Fault::mismatched) ==
          "rank 1: receive-activation of micro-batch 0 on stage 1: is met by the send-activation of micro-batch 1 on "
          "stage 0 of rank 0");
    // Messages into different stages travel on lines of their own: here those into stage 3 overtake those into stage 1.
    auto const ring = "micro-batches 1\nstages on ranks 0 1 0 1";
    CHECK(refusal_of(ring, {"F0@0 >a0@0 <a0@2 F0@2 >a0@2 <g0@2 B0@2 >g0@2 <g0@0 B0@0",
                            "<a0@3 <a0@1 F0@1 >a0@1 F0@3 B0@3 >g0@3 <g0@1 B0@1 >g0@1"}) == "");
    std::vector<int> lines;
    auto const schedule = by_hand(ring, {"F0@0", ""});
    for (int stage = 1; stage < 4; ++stage)
        for (Operation const operation : {Operation::receive_activation, Operation::send_gradient})
            lines.push_back(message_line(schedule, {operation, stage, 0}));
    CHECK(lines == std::vector{2, 1, 4, 3, 6, 5});
    CHECK(message_line(schedule, {Operation::send_activation, 0, 0}) == 2);
    CHECK(message_line(schedule, {Operation::receive_gradient, 0, 0}) == 1);
    CHECK(message_lines(schedule) == 8);
}

TEST_CASE("ranks that wait for each other for ever are refused") {
    // Rank 0 wants to finish stage 2 of micro-batch 0 before it sends.
    CHECK(refusal_of("micro-batches 1\nstages on ranks 0 1 0",
                     {"F0@0 <a0@2 F0@2 >a0@0 B0@2 >g0@2 <g0@0 B0@0", "<a0@1 F0@1 >a0@1 <g0@1 B0@1 >g0@1"},
                     Fault::deadlocked) == "rank 0: forward of micro-batch 0 on stage 2: waits for ever for what it "
                                           "receives; rank 1 in forward of micro-batch 0 on stage 1");
}

TEST_CASE("a schedule that needs more send buffers than the machine has is refused, and only then") {
    std::string const behind = "<a0 F0 B0 >g0 <a1 F1 B1 >g1 <a2 F2 B2 >g2 <a3 F3 B3 >g3";
    auto const four = "micro-batches 4\nstages on ranks 0 1";
    // Ahead by three, rank 0 waits to send the fourth activation and rank 1 to send the second gradient.
    auto const crossed = by_hand(four, {"F0 >a0 F1 >a1 F2 >a2 F3 >a3 <g0 B0 <g1 B1 <g2 B2 <g3 B3", behind});
    CHECK(refusal_of(crossed, Fault::deadlocked) ==
          "rank 0: send-activation of micro-batch 3 on stage 0: waits for ever for a send buffer; rank 1 in "
          "send-gradient of micro-batch 1 on stage 1");
    CHECK(refusal_of(crossed, Fault::deadlocked, {.send_buffers = 2}) == "");
    // Ahead by two, rank 1 still has its buffer for the first gradient when the third activation has to wait.
    CHECK(refusal_of(four, {"F0 >a0 F1 >a1 F2 >a2 <g0 B0 F3 >a3 <g1 B1 <g2 B2 <g3 B3", behind}) == "");
}

TEST_CASE("what a rank holds and waits for is counted at its peak") {
    auto const verdict = validate(by_hand(two, {"F0 >a0 F1 >a1 <g0 <g1 B0 B1", "<a0 <a1 F0 F1 D0 >g0 D1 >g1 W0 W1"}));
    CHECK(verdict.peak_in_flight == std::vector{2, 2});
    CHECK(verdict.peak_arriving == std::vector{2, 2});
    CHECK(verdict.weight_versions == std::vector{1, 1});
    CHECK(validate(by_hand(two, {"F0 >a0 F1 >a1 <g0 B0 <g1 B1", "<a0 F0 B0 >g0 <a1 F1 B1 >g1"})).peak_in_flight ==
          std::vector{2, 1});
}
