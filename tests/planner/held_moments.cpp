// The most that a rank holds is what a replay of its instructions finds, part by part.
#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/messages.hpp>
#include <pentad/planner/held_moments.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::planner;

namespace {

/// Follows the instructions of a rank: what is held as passes go through parts, one after the other.
double replayed(pipeline::Schedule const& schedule, std::size_t rank,
                std::vector<std::vector<PartMemory>> const& stages, double input) {
    using pipeline::Operation;
    double held = 0, most = 0;
    for (auto const& x : schedule.instructions[rank]) {
        auto parts = stages[static_cast<std::size_t>(x.stage)];
        auto const compute = [&](double bytes) { most = std::max(most, held + bytes); };
        switch (x.operation) {
        case Operation::forward:
        case Operation::recompute: {
            double const before = held;
            if (schedule.recomputes) held += x.operation == Operation::forward ? input : -input;
            double const with_input = held;
            for (auto const& part : parts) {
                compute(part.forward);
                held += part.saved;
            }
            if (schedule.recomputes && x.operation == Operation::forward) held = with_input;
            CHECK(held >= before - input);
            break;
        }
        case Operation::backward:
            for (std::size_t i = parts.size(); i-- > 0;) {
                held -= parts[i].saved;
                compute(std::max(parts[i].backward_data, parts[i].backward_weight));
            }
            break;
        case Operation::backward_data:
            for (std::size_t i = parts.size(); i-- > 0;) {
                held -= parts[i].saved;
                compute(parts[i].backward_data);
                held += parts[i].left;
            }
            break;
        case Operation::backward_weight:
            for (std::size_t i = parts.size(); i-- > 0;) {
                held -= parts[i].left;
                compute(parts[i].backward_weight);
            }
            break;
        default:
            break;
        }
    }
    CHECK(held == doctest::Approx(0));
    return most;
}

void compare(pipeline::Schedule const& schedule, std::mt19937& random) {
    std::uniform_int_distribution<int> bytes(0, 50);
    std::vector<std::vector<PartMemory>> stages;
    for (int stage = 0; stage < schedule.stages(); ++stage) {
        auto& parts = stages.emplace_back();
        for (std::size_t i = 0; i < 1 + random() % 4; ++i) {
            PartMemory part{.saved = 10.0 + bytes(random), .left = 1.0 + bytes(random)};
            part.forward = part.saved + bytes(random);
            part.backward_data = std::max(part.saved, part.left) + bytes(random);
            part.backward_weight = part.left + bytes(random);
            parts.push_back(part);
        }
    }
    auto const moments = held_moments(schedule);
    for (std::size_t rank = 0; rank < moments.size(); ++rank) {
        std::vector<HeldPart> parts;
        for (std::size_t stage = 0; stage < stages.size(); ++stage)
            if (schedule.has_stage(static_cast<int>(rank), static_cast<int>(stage)))
                for (auto const& part : stages[stage]) parts.push_back({stage, &part});
        INFO(schedule.name, " on ", schedule.ranks(), " ranks, rank ", rank);
        CHECK(most_held(moments[rank], parts, 7) == replayed(schedule, rank, stages, 7));
    }
}

} // namespace

TEST_CASE("the most that a rank holds is that of a replay of its schedule, part by part") {
    std::mt19937 random(11);
    struct Case {
        std::string schedule;
        int chunks = 1, slices = 1;
    };
    for (auto const& [name, chunks, slices] : std::vector<Case>{{"gpipe"},
                                                                {"1f1b"},
                                                                {"interleaved-1f1b", 2},
                                                                {"interleaved-1f1b", 3},
                                                                {"zb-h1"},
                                                                {"zb-h2"},
                                                                {"zb-v", 2},
                                                                {"v-half", 2},
                                                                {"dualpipe"},
                                                                {"terapipe", 1, 2}})
        for (int const ranks : {2, 4})
            for (int const micro_batches : {4, 12})
                for (int draw = 0; draw < 5; ++draw) {
                    pipeline::GeneratorOptions const options{
                        .ranks = ranks, .micro_batches = micro_batches, .chunks = chunks, .slices = slices};
                    if (!pipeline::undefined(name, options).empty()) continue;
                    compare(pipeline::generate(name, options), random);
                }
}

TEST_CASE("a schedule that recomputes keeps inputs instead") {
    std::mt19937 random(5);
    auto order = pipeline::generate("1f1b", {.ranks = 3, .micro_batches = 7});
    order.recomputes = true;
    for (auto& instructions : order.instructions) {
        std::vector<pipeline::Instruction> more;
        for (auto const& x : instructions) {
            if (x.operation == pipeline::Operation::backward) {
                auto again = x;
                again.operation = pipeline::Operation::recompute;
                more.push_back(again);
            }
            more.push_back(x);
        }
        instructions = std::move(more);
    }
    compare(order, random);
}

TEST_CASE("of a schedule those moments are kept in which a rank holds most") {
    auto const moments = held_moments(pipeline::generate("1f1b", {.ranks = 4, .micro_batches = 8}));
    for (std::size_t rank = 0; rank < 4; ++rank) {
        REQUIRE(moments[rank].size() == 1); // forward and backward passes beside as many others
        CHECK(moments[rank][0].saved[rank] == 3 - static_cast<double>(rank));
        CHECK(moments[rank][0].passes == (forward_pass | backward_pass));
        CHECK(moments[rank][0].between_passes().saved[rank] == 4 - static_cast<double>(rank));
    }
}
