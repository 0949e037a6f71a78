#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/search.hpp>
#include <pentad/pipeline/simulator.hpp>
#include <pentad/pipeline/validator.hpp>

#include "optimum.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace pentad::pipeline;

namespace {

struct Units {
    Time f, d, w; ///< forward, the data and the weight part of backward
};

constexpr std::int64_t unlimited = 1 << 20;

/// Checks that the schedule is one, for the given costs and memory, and as fast as it says.
void check(Automatic const& found, Costs const& costs, std::int64_t memory) {
    auto const verdict = validate(found.schedule);
    REQUIRE_MESSAGE(!verdict.refusal, verdict.refusal->message());
    auto const simulation = simulate(found.schedule, costs);
    CHECK(simulation.makespan == found.makespan);
    CHECK(simulation.peak_memory() <= memory);
}

} // namespace

// p <= 3, m <= 4; two chunks where p m <= 8.
TEST_CASE("the automatic schedule is as fast as the fastest of all in small pipelines") {
    std::mt19937_64 random(7);
    auto const from = [&](int low, int high) {
        return static_cast<int>(low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)));
    };
    int compared = 0, beaten = 0;
    for (int p = 1; p <= 3; ++p)
        for (int m = 1; m <= 4; ++m)
            for (int chunks = 1; chunks <= 2; ++chunks)
                for (int draw = 0; draw < 10; ++draw) {
                    if (p * m * chunks > 16) continue;
                    GeneratorOptions const options{
                        .ranks = p, .micro_batches = m, .chunks = chunks, .recompute = draw >= 8};
                    bool const two_copies = p == 2 && chunks == 1 && draw % 2 == 1;
                    Costs costs{.stages = {}, .message = draw % 4 == 3 || draw == 9 ? from(1, 3) : 0};
                    test::Work work{.placements = {},
                                    .micro_batches = {},
                                    .stages = {},
                                    .recompute = options.recompute,
                                    .message = static_cast<int>(costs.message)};
                    int largest = 0;
                    for (int stage = 0; stage < p * chunks; ++stage) {
                        // Equal times, equal stages, or nothing equal; backward in one as its parts, or cheaper.
                        test::StageWork x;
                        if (draw >= 2)
                            x.forward = from(1, 3), x.backward_data = from(1, 3), x.backward_weight = from(1, 3);
                        x.backward = x.backward_data + x.backward_weight - (draw >= 6 ? from(0, 1) : 0);
                        if (draw >= 4) x.activation = from(1, 3), x.weight_part = from(0, x.activation + (draw == 7));
                        if (draw >= 8) x.input = from(0, x.activation);
                        if (draw < 4 && stage > 0) x = work.stages[0];
                        work.stages.push_back(x);
                        costs.stages.push_back({.forward = x.forward,
                                                .backward_data = x.backward_data,
                                                .backward_weight = x.backward_weight,
                                                .backward = x.backward,
                                                .activation = x.activation,
                                                .weight_part = x.weight_part,
                                                .input = x.input});
                        largest = std::max(largest, x.activation);
                    }
                    for (int const memory : {chunks * largest, (chunks + 1) * largest, chunks * p * largest,
                                             static_cast<int>(unlimited)}) {
                        work.memory = memory;
                        auto const found = automatic(options, costs, {.memory = {memory}, .two_copies = two_copies});
                        check(found, costs, memory);
                        CHECK(found.optimal);
                        int best = static_cast<int>(found.makespan) + 1; // to see that the search for it finds it too
                        for (auto const& placements : search::placements(p, chunks, two_copies)) {
                            work.placements = placements;
                            work.micro_batches = {m};
                            if (placements.size() == 2) work.micro_batches = {(m + 1) / 2, m / 2};
                            best = test::shortest_time(work, p, best);
                        }
                        CHECK_MESSAGE(found.makespan == best, "p ", p, " m ", m, " chunks ", chunks, " draw ", draw,
                                      " memory ", memory);
                        ++compared;
                        beaten += found.schedule.name == "automatic" ? 1 : 0;
                    }
                }
    MESSAGE(compared, " optima, ", beaten, " of them without a name");
}

namespace {

struct Times {
    char const* name;
    std::vector<Units> of; ///< stage s has those of s mod their number
    std::size_t slow;      ///< the stage that takes twice as long, counted from the end; 0: none
};

std::vector<Times> const grid{
    {"equal", {{10, 10, 10}}, 0},
    {"as measured", {{10, 11, 7}}, 0},
    {"long weight parts", {{10, 10, 20}}, 0},
    {"short weight parts", {{10, 20, 5}}, 0},
    {"unequal stages", {{10, 12, 8}, {13, 14, 8}, {9, 12, 11}, {12, 15, 10}, {10, 17, 7}}, 0},
    {"a slow last stage", {{10, 11, 7}}, 1},
    {"a slow stage in the middle", {{10, 10, 10}}, 2},
};

Costs costs_of(Times const& times, int stages, Time message) {
    Costs costs{.stages = {}, .message = message};
    for (int stage = 0; stage < stages; ++stage) {
        auto const [f, d, w] = times.of[static_cast<std::size_t>(stage) % times.of.size()];
        bool const slow = (times.slow == 1 && stage + 1 == stages) || (times.slow == 2 && stage == stages / 2);
        Time const factor = slow ? 2 : 1;
        costs.stages.push_back({.forward = factor * f,
                                .backward_data = factor * d,
                                .backward_weight = factor * w,
                                .activation = 10,
                                .weight_part = 6});
    }
    return costs;
}

} // namespace

TEST_CASE("the automatic schedule is never slower than the best one with a name that fits, and often faster") {
    struct Count {
        int points = 0, faster = 0, optimal = 0;
    };
    std::map<std::string, Count> counts;
    for (int const p : {2, 3, 4, 6, 8})
        for (int const m : {p, 2 * p, 4 * p})
            for (Times const& times : grid)
                for (int chunks = 1; chunks <= (p * m < 50    ? 2
                                                : p * m < 200 ? 1
                                                              : 0);
                     ++chunks) // the rest takes most of the time
                    for (bool const two_copies : {false, true}) {
                        if (two_copies && (chunks == 2 || p % 2 != 0)) continue;
                        Time const message = m == 2 * p ? 3 : 0;
                        Costs const costs = costs_of(times, p * chunks, message);
                        std::vector<Simulation> named;
                        for (Generator const& generator : generators) {
                            if (!generator.is_defined(p, chunks) || (generator.even_ranks && !two_copies)) continue;
                            if (std::set<std::string_view>{"pipedream", "pipedream-2bw"}.count(generator.name) != 0)
                                continue;
                            named.push_back(simulate(
                                generate(generator.name, {.ranks = p, .micro_batches = m, .chunks = chunks}), costs));
                        }
                        std::int64_t tightest = unlimited;
                        for (Simulation const& one : named) tightest = std::min(tightest, one.peak_memory());
                        for (auto const& [name, memory] :
                             std::vector<std::pair<std::string, std::int64_t>>{{"tightest memory", tightest},
                                                                               {"half as much more", tightest * 3 / 2},
                                                                               {"unlimited", unlimited}}) {
                            Time best = std::numeric_limits<Time>::max();
                            for (Simulation const& one : named)
                                if (one.peak_memory() <= memory) best = std::min(best, one.makespan);
                            auto const found =
                                automatic({.ranks = p, .micro_batches = m, .chunks = chunks}, costs,
                                          {.memory = {memory}, .two_copies = two_copies, .states = 40'000});
                            check(found, costs, memory);
                            CHECK_MESSAGE(found.makespan <= best, times.name, ", p ", p, " m ", m, " chunks ", chunks);
                            for (std::string const& kind :
                                 {std::string("all"), std::string(times.name), name, "p " + std::to_string(p),
                                  std::string(two_copies    ? "two copies"
                                              : chunks == 2 ? "two chunks"
                                                            : "one chunk")}) {
                                Count& count = counts[kind];
                                ++count.points;
                                count.faster += found.makespan < best ? 1 : 0;
                                count.optimal += found.optimal ? 1 : 0;
                            }
                        }
                    }
    for (auto const& [kind, count] : counts)
        MESSAGE(kind, ": ", count.faster, " of ", count.points, " faster than any with a name, ", count.optimal,
                " as fast as can be");
    CHECK(counts["all"].points >= 200);
    CHECK(4 * counts["all"].faster >= counts["all"].points);
}

TEST_CASE("whatever the options, the automatic schedule is one, and the same each time") {
    for (int const chunks : {1, 2, 3})
        for (bool const two_copies : {false, true})
            for (bool const recompute : {false, true}) {
                Costs costs{.stages = {}, .message = 2};
                for (int stage = 0; stage < 4 * chunks; ++stage)
                    costs.stages.push_back({.forward = 10 + stage % 3,
                                            .backward_data = 12,
                                            .backward_weight = 9 - stage % 2,
                                            .backward = 19,
                                            .activation = 8,
                                            .weight_part = 5,
                                            .input = 1 + stage % 2});
                GeneratorOptions const options{.ranks = 4,
                                               .micro_batches = 7,
                                               .chunks = chunks,
                                               .recompute = recompute,
                                               .stage_operations = {.gather = true, .reduce = true, .step = true}};
                std::int64_t const memory = recompute ? 8 + 5 * chunks : 32 * chunks;
                SearchOptions const search{.memory = {memory}, .two_copies = two_copies, .states = 20'000};
                auto const found = automatic(options, costs, search);
                check(found, costs, memory);
                CHECK(found.schedule.recomputes == recompute);
                CHECK(found.schedule.gathers);
                CHECK(found.schedule.updates == 1);
                CHECK(automatic(options, costs, search).schedule == found.schedule);
            }
    // A rank with less memory than the others gets less to hold.
    auto const uneven = automatic({.ranks = 3, .micro_batches = 6}, {}, {.memory = {3, 1, 6}});
    CHECK(validate(uneven.schedule).peak_in_flight[1] == 1);
    // A rank alone, and nothing searched.
    CHECK(automatic({.ranks = 1, .micro_batches = 2}, {}).makespan == 6);
    auto const unsearched = automatic({.ranks = 4, .micro_batches = 8}, {}, {.states = 0});
    CHECK(unsearched.schedule.name != "automatic");
}

TEST_CASE("the search ends where ranks that recompute wait for each other") {
    Costs costs{.stages = {}};
    for (Units const u : {Units{4, 0, 1}, {3, 3, 1}, {1, 0, 2}, {3, 3, 2}})
        costs.stages.push_back({.forward = u.f, .backward_data = u.d, .backward_weight = u.w});
    auto const found =
        automatic({.ranks = 2, .micro_batches = 1, .chunks = 2, .recompute = true}, costs, {.states = 300});
    check(found, costs, unlimited);
    CHECK(found.optimal);
}

TEST_CASE("the search says how far it is") {
    Costs const costs{.stages = {{.forward = 10, .backward_data = 11, .backward_weight = 7}}, .message = 2};
    std::vector<double> parts;
    automatic({.ranks = 8, .micro_batches = 8}, costs,
              {.states = 1000, .progress = [&](double part) { parts.push_back(part); }});
    REQUIRE(parts.size() > 100);
    CHECK(std::is_sorted(parts.begin(), parts.end()));
    CHECK(parts.front() == 0);
    CHECK(parts.back() > 0.9);
    CHECK(parts.back() <= 1);
}

TEST_CASE("what the automatic schedule cannot be is refused with what would do") {
    auto const refusal = [](GeneratorOptions const& options, Costs const& costs, SearchOptions const& search) {
        try {
            automatic(options, costs, search);
        } catch (std::invalid_argument const& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(
        refusal({.ranks = 2, .micro_batches = 2, .chunks = 2}, {.stages = {{.activation = 5}}}, {.memory = {12, 9}}) ==
        "automatic needs memory for one micro-batch at least: that takes 10 on rank 1, whose limit is 9; "
        "recomputation takes less");
    CHECK(refusal({.ranks = 2, .micro_batches = 2, .recompute = true}, {.stages = {{.activation = 5, .input = 1}}},
                  {.memory = {4}}) ==
          "automatic needs memory for one micro-batch at least: that takes 5 on rank 0, whose limit is 4");
    CHECK(refusal({.ranks = 0}, {}, {}) == "automatic needs at least one rank and one micro-batch, not 0 and 1");
    CHECK(refusal({.chunks = -1}, {}, {}) == "automatic needs at least one chunk a rank, not -1");
    CHECK(refusal({.slices = 2}, {}, {}) == "automatic is a step of whole sequences: no slices, no updates");
    CHECK(refusal({.updates = 2}, {}, {}) == "automatic is a step of whole sequences: no slices, no updates");
    CHECK(refusal({.ranks = 2}, {.stages = {{}, {}, {}}}, {}) ==
          "automatic needs costs of one stage or of each of 2, not of 3");
    CHECK(refusal({.ranks = 3}, {}, {.memory = {1, 2}}) ==
          "automatic needs one limit of memory or one for each of 3 ranks, not 2");
}
