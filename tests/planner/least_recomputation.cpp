// The dynamic programme finds what trying every choice finds.
#include <doctest/doctest.h>

#include <pentad/planner/least_recomputation.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

using namespace pentad::planner;

namespace {

/// The most bytes at a moment, part after part as a pass goes through them.
double bytes_at(HeldMoment const& moment, RecomputationProblem const& problem, std::vector<std::size_t> const& chosen) {
    auto const memory = [&](std::size_t i) -> PartMemory const& {
        return problem.options[problem.parts[i].options][chosen[i]].memory;
    };
    double others = 0, saved = 0, left = 0;
    std::vector<std::size_t> computes; // in the order of a forward pass
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        auto const stage = problem.parts[i].stage;
        others += moment.saved[stage] * memory(i).saved + moment.left[stage] * memory(i).left;
        if (moment.passes == 0 || stage != moment.stage) continue;
        computes.push_back(i);
        saved += memory(i).saved;
        left += memory(i).left;
    }
    double most = others, held = others;
    if ((moment.passes & forward_pass) != 0)
        for (auto const i : computes) {
            most = std::max(most, held + memory(i).forward);
            held += memory(i).saved;
        }
    std::reverse(computes.begin(), computes.end());
    held = others + saved;
    if ((moment.passes & backward_pass) != 0)
        for (auto const i : computes) {
            held -= memory(i).saved;
            most = std::max({most, held + memory(i).backward_data, held + memory(i).backward_weight});
        }
    held = others + saved;
    if ((moment.passes & backward_data_pass) != 0)
        for (auto const i : computes) {
            held -= memory(i).saved;
            most = std::max(most, held + memory(i).backward_data);
            held += memory(i).left;
        }
    held = others + left;
    if ((moment.passes & backward_weight_pass) != 0)
        for (auto const i : computes) {
            held -= memory(i).left;
            most = std::max(most, held + memory(i).backward_weight);
        }
    return most;
}
double lacking_with(RecomputationProblem const& problem, std::vector<std::size_t> const& chosen) {
    double lacking = -std::numeric_limits<double>::infinity();
    for (auto const& moment : problem.moments)
        lacking = std::max(lacking, bytes_at(moment, problem, chosen) - moment.room);
    return lacking;
}
double work_of(RecomputationProblem const& problem, std::vector<std::size_t> const& chosen) {
    double work = 0;
    for (std::size_t i = 0; i < chosen.size(); ++i) work += problem.options[problem.parts[i].options][chosen[i]].work;
    return work;
}

/// Over all choices the least work that fits, infinity where none does, and what the one that lacks least lacks.
struct ByForce {
    double work = std::numeric_limits<double>::infinity(), lacking = std::numeric_limits<double>::infinity();
};
ByForce by_force(RecomputationProblem const& problem) {
    std::vector<std::size_t> chosen(problem.parts.size(), 0);
    ByForce best;
    while (true) {
        double const lacking = lacking_with(problem, chosen);
        best.lacking = std::min(best.lacking, lacking);
        if (lacking <= 0) best.work = std::min(best.work, work_of(problem, chosen));
        std::size_t at = 0;
        while (at < chosen.size() && ++chosen[at] == problem.options[problem.parts[at].options].size())
            chosen[at++] = 0;
        if (at == chosen.size()) return best;
    }
}

/// Work, and whether what was chosen fits, of a solution.
void check_choice(RecomputationProblem const& problem, RecomputationChoice const& choice) {
    REQUIRE(choice.options.size() == problem.parts.size());
    CHECK(work_of(problem, choice.options) == doctest::Approx(choice.work));
    CHECK(choice.lacking == 0);
    CHECK(lacking_with(problem, choice.options) <= 1e-9);
}

/// Options as blocks have them: nothing recomputed, pieces, all. Numbers of no pattern.
std::vector<BlockOption> drawn_options(std::mt19937& random, std::size_t count) {
    std::uniform_real_distribution<double> uniform(0, 1);
    double const all = 50 + 100 * uniform(random), left = all * 1.2 * uniform(random);
    std::vector<BlockOption> options;
    for (std::size_t i = 0; i < count; ++i) {
        double const part = i == 0 ? 1 : uniform(random), again = (1 - part) * all;
        PartMemory memory{.saved = all * part, .left = left};
        memory.forward = memory.saved + 60 * uniform(random);
        memory.backward_data = std::max(memory.saved, left) + again * uniform(random) + 40 * uniform(random);
        memory.backward_weight = left + 20 * uniform(random);
        options.push_back({memory, (1 - part) * 10 * (0.3 + uniform(random))});
    }
    return options;
}

} // namespace

TEST_CASE("chains of up to 12 parts: the same work as trying every choice, or nothing fits by either") {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> uniform(0, 1);
    int unsolved = 0, tight = 0;
    for (int trial = 0; trial < 400; ++trial) {
        RecomputationProblem problem;
        std::size_t const parts = 1 + random() % 12, options = parts > 8 ? 3 : 2 + random() % 3;
        bool const alike = random() % 3 == 0;
        std::size_t const stages = 1 + random() % 2;
        std::size_t stage = 0;
        for (std::size_t done = 0; done < parts;) {
            std::size_t const count = alike ? std::min<std::size_t>(parts - done, 1 + random() % 6) : 1;
            // Those at the ends have no choice.
            problem.options.push_back(drawn_options(random, done == 0 && random() % 2 == 0 ? 1 : options));
            for (std::size_t i = 0; i < count; ++i) problem.parts.push_back({stage, problem.options.size() - 1});
            done += count;
            if (stage + 1 < stages && random() % 4 == 0) ++stage;
        }
        double whole = 0;
        for (auto const& part : problem.parts) whole += problem.options[part.options].front().memory.saved;
        bool const splits = random() % 2 == 0;
        std::size_t const moments = 1 + random() % 4;
        for (std::size_t m = 0; m < moments; ++m) {
            HeldMoment moment;
            double held = 1;
            for (std::size_t s = 0; s < stages; ++s) {
                moment.saved.push_back(static_cast<double>(random() % 4));
                moment.left.push_back(static_cast<double>(splits ? random() % 2 : 0));
                held += (moment.saved[s] + moment.left[s]) / static_cast<double>(stages);
            }
            moment.stage = random() % stages;
            auto const kind = random() % 7;
            moment.passes = splits ? std::initializer_list<std::uint8_t>{forward_pass,         backward_data_pass,
                                                                         backward_weight_pass, 0,
                                                                         backward_data_pass,   forward_pass,
                                                                         backward_data_pass}
                                         .begin()[kind]
                            : kind == 0 ? forward_pass
                            : kind == 1 ? backward_pass
                            : kind == 2 ? 0
                                        : forward_pass | backward_pass;
            if (moment.passes == 0) moment.stage = 0;
            moment.room = 60 + whole * held * (0.2 + 0.9 * uniform(random));
            problem.moments.push_back(moment);
        }
        INFO("trial ", trial, ": ", parts, " parts, ", options, " options, ", moments, " moments");
        auto const expected = by_force(problem);
        auto const found = least_recomputation(problem);
        CHECK(found.is_exact);
        if (expected.lacking > 0) {
            ++unsolved;
            CHECK(found.lacking >= expected.lacking * (1 - 1e-12));
            if (moments == 1) CHECK(found.lacking == doctest::Approx(expected.lacking));
            CHECK(lacking_with(problem, found.options) == doctest::Approx(found.lacking));
            continue;
        }
        tight += expected.work > 0 ? 1 : 0;
        CHECK(found.work == doctest::Approx(expected.work).epsilon(1e-12));
        CHECK(found.bound <= found.work * (1 + 1e-12));
        check_choice(problem, found);
    }
    CHECK(unsolved > 10);
    CHECK(tight > 100);
    MESSAGE(unsolved, " do not fit, ", tight, " only with recomputation");
}

TEST_CASE("what a block needs for a while counts beside what the blocks before it keep") {
    // Two blocks of 100 bytes. Recomputed from 10 bytes a block needs 130 for a while.
    RecomputationProblem problem{
        .options = {{{{.saved = 100, .forward = 105, .backward_data = 110}, 0},
                     {{.saved = 10, .forward = 105, .backward_data = 130}, 4}}},
        .parts = {{0, 0}, {0, 0}},
        .moments = {{.saved = {0}, .left = {0}, .passes = forward_pass | backward_pass, .room = 209}}};
    // As the second block goes backward the first keeps 10; as the first does, nothing is kept.
    auto found = least_recomputation(problem);
    CHECK(found.options == std::vector<std::size_t>{1, 0});
    CHECK(found.work == 4);
    problem.moments[0].room = 130;
    found = least_recomputation(problem);
    CHECK(found.options == std::vector<std::size_t>{1, 0});
    problem.moments[0].room = 129;
    CHECK(least_recomputation(problem).lacking == 1);
    // Another micro-batch in flight holds all that both keep.
    problem.moments[0] = {.saved = {1}, .left = {0}, .passes = backward_pass, .room = 240};
    found = least_recomputation(problem);
    CHECK(found.lacking == 0);
    CHECK(found.options == std::vector<std::size_t>{1, 0}); // 110 of the other, and 120, then 130
    problem.moments[0].room = 239;
    CHECK(least_recomputation(problem).options == std::vector<std::size_t>{1, 1}); // 20 of the other, and 140
}

TEST_CASE("the least that is lacking is what a moment needs more") {
    RecomputationProblem problem{
        .options = {{{{.saved = 100, .forward = 100, .backward_data = 100}, 0},
                     {{.saved = 10, .forward = 60, .backward_data = 60}, 4}}},
        .parts = {{0, 0}, {0, 0}, {0, 0}},
        .moments = {{.saved = {1}, .left = {0}, .passes = forward_pass | backward_pass, .room = 100}}};
    CHECK(least_recomputation(problem).lacking == 30 + 20 + 60 - 100);
    problem.moments[0].room += least_recomputation(problem).lacking;
    auto const found = least_recomputation(problem);
    CHECK(found.lacking == 0);
    CHECK(found.work == 12);
}

TEST_CASE("a long chain of blocks of three kinds is solved in little time, and near its bound") {
    std::mt19937 random(3);
    for (double const in_flight : {0.0, 7.0}) {
        RecomputationProblem problem;
        double whole = 0;
        for (std::size_t const count : {3, 60, 63}) {
            problem.options.push_back(drawn_options(random, 12));
            for (std::size_t i = 0; i < count; ++i) problem.parts.push_back({0, problem.options.size() - 1});
            whole += static_cast<double>(count) * problem.options.back().front().memory.saved;
        }
        problem.moments.push_back({.saved = {in_flight},
                                   .left = {0},
                                   .passes = forward_pass | backward_pass,
                                   .room = (in_flight + 1) * whole / 2});
        auto const start = std::chrono::steady_clock::now();
        auto const found = least_recomputation(problem);
        std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
        check_choice(problem, found);
        MESSAGE("work ", found.work, " of at least ", found.bound, " in ", 1e3 * took.count(),
                " ms, exact: ", found.is_exact);
        CHECK(found.work < 1.02 * found.bound);
    }
}
