#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/simulator.hpp>
#include <pentad/pipeline/text.hpp>

#include "optimum.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

using namespace pentad::pipeline;

namespace {

struct Units {
    Time f, d, w; ///< forward, the data and the weight part of backward
};
Costs costs_of(Units const& t) { return {.stages = {{.forward = t.f, .backward_data = t.d, .backward_weight = t.w}}}; }
constexpr std::initializer_list<Units> all_times{{1, 1, 1}, {10, 11, 7}, {2, 3, 4}};

/// What the ranks with the longest span wait in it; all ranks work as long.
Time bubble_time(Schedule const& schedule, Units const& t) {
    auto const simulation = simulate(schedule, costs_of(t));
    Time const work = simulation.ranks[0].busy;
    for (auto const& rank : simulation.ranks)
        if (rank.busy != work) FAIL("the ranks of " << schedule.name << " do not work as long as each other");
    Time const waiting = simulation.span() - work;
    double const bubble = static_cast<double>(waiting) / static_cast<double>(simulation.span());
    if (std::abs(simulation.bubble() - bubble) > 1e-12) FAIL_CHECK(simulation.bubble() << " is not " << bubble);
    return waiting;
}

/// Compares with a closed form (p, m, times) for p in 1..16 and of its domain m in 1..32 and each fourth up to 64.
template <class Domain, class ClosedForm>
void compare(std::string_view name, GeneratorOptions options, std::initializer_list<Units> times, Domain domain,
             ClosedForm closed_form) {
    auto const& generator =
        *std::find_if(generators.begin(), generators.end(), [&](Generator const& one) { return one.name == name; });
    for (int p = generator.even_ranks ? 2 : 1; p <= 16; p += generator.even_ranks ? 2 : 1)
        for (int m = 1; m <= 64; m += m < 32 ? 1 : 4) {
            if (!domain(p, m)) continue;
            options.ranks = p;
            options.micro_batches = m;
            auto const schedule = generate(name, options);
            for (Units const& t : times)
                if (Time const found = bubble_time(schedule, t), expected = closed_form(p, m, t); found != expected)
                    FAIL_CHECK(name << " p " << p << " m " << m << " v " << options.chunks << " F " << t.f << " D "
                                    << t.d << " W " << t.w << ": waits " << found << ", not " << expected);
        }
}

constexpr auto everywhere = [](int, int) { return true; };
constexpr auto filled = [](int p, int m) { return m >= p; };
constexpr auto whole_rounds = [](int p, int m) { return m % p == 0; };
constexpr auto classic = [](int p, int, Units const& t) { return (p - 1) * (t.f + t.d + t.w); };

} // namespace

// The bubble (p - 1) / (m + p - 1), m in the units of the schedule (times v chunks, times K slices), is a wait of
// (p - 1) (F + B) beside work of m (F + B).
TEST_CASE("GPipe, TeraPipe and all kinds of 1F1B wait (p - 1) (F + B), whatever the times and m") {
    for (auto const name : {"gpipe", "1f1b", "eager-1f1b", "pipedream", "pipedream-2bw"})
        compare(name, {}, all_times, everywhere, classic);
    compare("terapipe", {.slices = 4}, all_times, everywhere, classic);
}

TEST_CASE("interleaved 1F1B and looped breadth-first wait (p - 1) (F + B) of a chunk, for m >= p") {
    for (int chunks = 1; chunks <= 4; ++chunks)
        for (auto const name : {"interleaved-1f1b", "looped-bfs"})
            compare(name, {.chunks = chunks}, {{1, 1, 1}, {10, 11, 7}}, filled, classic);
}

TEST_CASE("ZB-H1 waits (p - 1) (F + D - W) for m >= p and W <= F") {
    compare("zb-h1", {}, {{1, 1, 1}, {3, 4, 2}, {10, 11, 7}, {5, 1, 1}}, filled,
            [](int p, int, Units const& t) { return (p - 1) * (t.f + t.d - t.w); });
}

TEST_CASE("ZB-H2 waits (p - 1) (F + D - 2W) for m >= 2p - 1 and W <= F, D: nothing where the three are equal") {
    compare(
        "zb-h2", {}, {{1, 1, 1}, {3, 4, 2}, {10, 11, 7}, {5, 1, 1}}, [](int p, int m) { return m >= 2 * p - 1; },
        [](int p, int, Units const& t) { return (p - 1) * (t.f + t.d - 2 * t.w); });
}

TEST_CASE("ZB-V waits for nothing where F = D = W and m >= 2p - 1") {
    compare(
        "zb-v", {}, {{1, 1, 1}, {7, 7, 7}}, [](int p, int m) { return m >= 2 * p - 1; },
        [](int, int, Units const&) { return 0; });
}

TEST_CASE("V-Half waits about 7p/2 units where F = D = W and V-Min about 4p, 1F1B of the same model 6 (p - 1)") {
    compare("v-half", {}, {{1, 1, 1}}, filled,
            [](int p, int, Units const&) { return p % 2 == 0 ? 7 * p / 2 - 2 : 7 * (p - 1) / 2; });
    compare("v-min", {}, {{1, 1, 1}}, filled, [](int p, int, Units const&) {
        return p == 1 ? 0 : p % 3 == 0 ? 4 * p - 3 : 4 * p - 5;
    });
}

TEST_CASE("Chimera waits (p - 2) F where F = B, for multiples of p") {
    compare("chimera", {}, {{2, 1, 1}, {7, 4, 3}}, whole_rounds,
            [](int p, int, Units const& t) { return (p - 2) * t.f; });
}

TEST_CASE(
    "Hanayo waits (p - 1) (F + B) of a chunk where F = B, for multiples of p, and 4 (p - 1) F where B = 2F and m = p") {
    for (int const chunks : {2, 4}) {
        compare("hanayo", {.chunks = chunks}, {{2, 1, 1}, {7, 4, 3}}, whole_rounds, classic);
        compare(
            "hanayo", {.chunks = chunks}, {{1, 1, 1}}, [](int p, int m) { return m == p; },
            [](int p, int, Units const& t) { return 4 * (p - 1) * t.f; });
    }
}

TEST_CASE("DualPipe waits (p/2 - 1) (F + D - W) where F = D = W and m >= 2p: ranks compute one thing after the other") {
    compare(
        "dualpipe", {}, {{1, 1, 1}, {7, 7, 7}}, [](int p, int m) { return m % 2 == 0 && m >= 2 * p; },
        [](int p, int, Units const& t) { return (p / 2 - 1) * (t.f + t.d - t.w); });
    compare(
        "dualpipe-v", {}, {{1, 1, 1}, {7, 7, 7}}, [](int p, int m) { return m >= 2 * p; },
        [](int p, int, Units const& t) { return (p - 1) * (t.f + t.d - t.w); });
}

TEST_CASE("DualPipe of pairs waits (p/2 - 1) (P + B - 3W), P of a pair, where F = D = W and m >= 2p") {
    auto const wait = [](Units const& t) { return (3 * t.f) + (t.d + t.w) - 3 * t.w; };
    compare(
        "dualpipe", {.pairs = true}, {{1, 1, 1}, {7, 7, 7}}, [](int p, int m) { return m % 2 == 0 && m >= 2 * p; },
        [&](int p, int, Units const& t) { return (p / 2 - 1) * wait(t); });
    compare(
        "dualpipe-v", {.pairs = true}, {{1, 1, 1}, {7, 7, 7}}, [](int p, int m) { return m >= 2 * p; },
        [&](int p, int, Units const& t) { return (p - 1) * wait(t); });
}

TEST_CASE("a pair takes its computes, or its exchanges, or the longer of its two passes") {
    auto const of = [](Time f, Time d, Time w, Time in_f, Time in_d, Time in_w) {
        Costs const costs{.stages = {{.forward = f,
                                      .backward_data = d,
                                      .backward_weight = w,
                                      .forward_exchanges = in_f,
                                      .backward_data_exchanges = in_d,
                                      .backward_weight_exchanges = in_w}}};
        auto const simulation = simulate(
            parse_schedule("schedule pair\nmicro-batches 2\nstages on ranks 0\nrank 0: F0 F1& B0 B1\n"), costs);
        CHECK(simulation.ranks[0].busy == simulation.makespan);
        Time const pair = simulation.makespan - f - d - w;
        CHECK(simulation.ranks[0].hidden == f + d + w - pair);
        return pair;
    };
    CHECK(of(3, 4, 5, 0, 0, 0) == 12);
    CHECK(of(30, 40, 50, 10, 20, 0) == 90);
    CHECK(of(30, 40, 50, 29, 39, 10) == 90); // the backward alone
    CHECK(of(30, 40, 10, 29, 39, 0) == 68);  // the exchanges
    CHECK(of(90, 40, 10, 70, 10, 0) == 90);  // the forward
}

TEST_CASE("what pairs hide shortens DualPipe: at p = 4 and m = 16 by the exchanges of 14 of 16 forwards") {
    Costs const costs{.stages = {{.forward = 10,
                                  .backward_data = 10,
                                  .backward_weight = 10,
                                  .forward_exchanges = 2,
                                  .backward_data_exchanges = 3}}};
    auto const one = simulate(generate("dualpipe", {.ranks = 4, .micro_batches = 16}), costs);
    auto const pairs = simulate(generate("dualpipe", {.ranks = 4, .micro_batches = 16, .pairs = true}), costs);
    for (std::size_t rank = 0; rank < 4; ++rank)
        CHECK(one.ranks[rank].busy - pairs.ranks[rank].busy == pairs.ranks[rank].hidden);
    CHECK(pairs.makespan < one.makespan);
}

TEST_CASE("no schedule is faster than the fastest of all, and most are as fast") {
    std::map<std::string, int> slower; // in how many of the sizes
    for (Generator const& generator : generators)
        for (int p = 1; p <= 3; ++p)
            for (int m = 1; m <= 3; ++m) {
                int const chunks = generator.least_chunks;
                if ((generator.even_ranks && p % 2 != 0) || p * m * chunks > 9) continue;
                auto const schedule = generate(generator.name, {.ranks = p, .micro_batches = m});
                bool const split = generator.name.substr(0, 2) == "zb" || generator.name.substr(0, 2) == "v-" ||
                                   generator.name.substr(0, 4) == "dual";
                test::Work work{.placements = schedule.placements,
                                .micro_batches = {},
                                .stages = std::vector<test::StageWork>(static_cast<std::size_t>(schedule.stages())),
                                .split = split,
                                .joined = !split};
                for (std::size_t at = 0; at < schedule.placements.size(); ++at)
                    work.micro_batches.push_back((m + (at == 0 ? 1 : 0)) / (schedule.placements.size() == 1 ? 1 : 2));
                if (schedule.placements.size() == 1) work.micro_batches = {m};
                int const best = test::shortest_time(work, p, 1 << 20);
                auto const found = simulate(schedule).makespan;
                CHECK_MESSAGE(found >= best, generator.name, " p ", p, " m ", m);
                if (found > best) ++slower[std::string(generator.name)];
            }
    // These have few micro-batches for what they are made for, or keep to less memory.
    CHECK(slower == std::map<std::string, int>{{"chimera", 1},
                                               {"dualpipe", 2},
                                               {"dualpipe-v", 3},
                                               {"v-half", 3},
                                               {"v-min", 1},
                                               {"zb-h2", 1},
                                               {"zb-v", 3}});
}

TEST_CASE("messages lengthen GPipe by one trip there and one back for each hop, and eager 1F1B less than 1F1B") {
    for (int p = 1; p <= 6; ++p)
        for (int m = 1; m <= 8; ++m)
            CHECK(simulate(generate("gpipe", {.ranks = p, .micro_batches = m}),
                           {.stages = {{.forward = 2, .backward = 4}}, .message = 1})
                      .makespan == (m + p - 1) * 6 + 2 * (p - 1));
    Costs const slow{.stages = {{.forward = 2, .backward = 2}}, .message = 1};
    auto const time = [&](std::string_view name) {
        return simulate(generate(name, {.ranks = 4, .micro_batches = 32}), slow).makespan;
    };
    CHECK(time("1f1b") > 32 * 4 + 32);
    CHECK(time("eager-1f1b") < 32 * 4 + 24);
}

TEST_CASE("forwards alone take m + p - 1 forwards, and no rank waits inside its span") {
    auto const simulation =
        simulate(forwards_of(generate("gpipe", {.ranks = 4, .micro_batches = 6}), 6), {.stages = {{.forward = 5}}});
    CHECK(simulation.makespan == 9 * 5);
    CHECK(simulation.bubble() == doctest::Approx(0));
}

TEST_CASE("stages may cost different times") {
    // The second stage does everything at half the speed: three micro-batches are 3 x 6 beside one forward and one
    // backward of the first.
    auto const simulation = simulate(generate("1f1b", {.ranks = 2, .micro_batches = 3}),
                                     {.stages = {{}, {.forward = 2, .backward_data = 2, .backward_weight = 2}}});
    CHECK(simulation.makespan == 1 + 3 * 6 + 2);
    CHECK(simulation.ranks[0].busy == 9);
    CHECK(simulation.ranks[1].busy == 18);
    CHECK(simulation.ranks[1].start == 1);
}

TEST_CASE("memory follows activations, what backward_data leaves of them, and recomputation") {
    // ZB-H1 on p stages: stage s holds p - s whole activations and s that wait for their weight part (Qi et al. 2023).
    for (int p = 1; p <= 8; ++p) {
        auto const simulation = simulate(generate("zb-h1", {.ranks = p, .micro_batches = 3 * p}),
                                         {.stages = {{.activation = 100, .weight_part = 30}}});
        for (int s = 0; s < p; ++s)
            CHECK(simulation.ranks[static_cast<std::size_t>(s)].peak_memory == (p - s) * 100 + s * 30);
        CHECK(simulation.peak_memory() == p * 100);
    }
    // Where nothing is let go early, it is what the validator counts.
    for (Generator const& generator : generators) {
        auto const schedule = generate(generator.name, {.ranks = 4, .micro_batches = 9});
        auto const timed = simulate(schedule);
        for (std::size_t rank = 0; rank < 4; ++rank)
            CHECK(timed.ranks[rank].peak_memory == validate(schedule).peak_in_flight[rank]);
    }
    // With recomputation only one micro-batch is there as a whole.
    auto const recomputing = generate("gpipe", {.ranks = 3, .micro_batches = 7, .recompute = true});
    auto const simulation = simulate(recomputing, {.stages = {{.activation = 100, .input = 1}}});
    CHECK(simulation.peak_memory() == 6 + 100);
    CHECK(simulation.ranks[0].busy == 7 * (1 + 1 + 2));
    CHECK(
        simulate(forwards_of(generate("gpipe", {.ranks = 2, .micro_batches = 5}), 5), {.stages = {{.activation = 100}}})
            .peak_memory() == 100);
}

TEST_CASE("a schedule that the validator refuses is not timed, nor one without a cost for each stage") {
    auto schedule = generate("gpipe", {.ranks = 2, .micro_batches = 1});
    CHECK_THROWS_WITH_AS(simulate(schedule, {.stages = {{}, {}, {}}}),
                         "costs are for one stage or for each of 2, not for 3", std::invalid_argument);
    schedule.instructions[0].pop_back();
    CHECK_THROWS_WITH_AS(simulate(schedule, {}),
                         "cannot time the schedule gpipe: rank 0: backward of micro-batch 0 on stage 0: is never done",
                         std::invalid_argument);
}
