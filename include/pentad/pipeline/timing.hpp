// When each instruction of a schedule starts and ends, for given times: the one place
// where time passes. Times are integers in a unit of the caller's, so that closed forms hold to the unit.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

namespace pentad::pipeline {

using Time = std::int64_t;

/// What a micro-batch (or a slice of one) costs on a stage.
struct StageCost {
    Time forward = 1; ///< recompute takes as long
    Time backward_data = 1;
    Time backward_weight = 1;
    std::optional<Time> backward = std::nullopt; ///< where both are done in one; empty: their sum
    std::int64_t activation = 1;                 ///< memory from its forward to the end of its backward
    std::int64_t weight_part = 1;                ///< what is left of it between backward_data and backward_weight
    std::int64_t input = 0;                      ///< what is held instead from forward to recompute

    [[nodiscard]] constexpr Time of(Operation operation) const {
        switch (operation) {
        case Operation::forward:
        case Operation::recompute:
            return forward;
        case Operation::backward:
            return backward.value_or(backward_data + backward_weight);
        case Operation::backward_data:
            return backward_data;
        case Operation::backward_weight:
            return backward_weight;
        default:
            return 0;
        }
    }
};

struct Costs {
    std::vector<StageCost> stages{StageCost{}}; ///< one for each stage, or one for all
    Time message = 0;                           ///< from its send to its arrival

    [[nodiscard]] StageCost const& of(int stage) const {
        return stages.size() == 1 ? stages[0] : stages[static_cast<std::size_t>(stage)];
    }
};

/// Calls visit(rank, position, start, end) for each instruction that is not a message, rank by rank in order: each
/// starts when its rank is free and its input there. Sends do not hold up their rank; messages need not be in the
/// schedule. Instructions must be of stages, micro-batches and slices that exist. True when everything ran, false when
/// the order of the computes makes ranks wait for ever. Time and memory are linear in the length.
template <class Visit>
bool run_in_time(Schedule const& schedule, Costs const& costs, Visit visit) {
    auto const index = [](int number) { return static_cast<std::size_t>(number); };
    constexpr Time not_yet = -1;
    // When the activations and the gradients that each stage makes are there.
    std::vector<Time> activations(schedule.cells(), not_yet);
    std::vector<Time> gradients = activations;

    std::vector<std::size_t> next(index(schedule.ranks()));
    std::vector<Time> now(index(schedule.ranks()));
    std::vector<int> work(index(schedule.ranks()));
    std::iota(work.rbegin(), work.rend(), 0);
    while (!work.empty()) {
        int const rank = work.back();
        work.pop_back();
        auto const& instructions = schedule.instructions[index(rank)];
        for (auto& at = next[index(rank)]; at < instructions.size(); ++at) {
            Instruction const& instruction = instructions[at];
            if (is_send(instruction.operation) || is_receive(instruction.operation)) continue;
            bool const forward = instruction.operation == Operation::forward;
            bool const passes_on = forward || makes_gradient(instruction.operation);
            auto const rank_of = [&](int stage) { return schedule.rank_of(stage, instruction.micro_batch); };
            auto const exists = [&](int stage) { return passes_on && stage >= 0 && stage < schedule.stages(); };
            int const before = forward ? instruction.stage - 1 : instruction.stage + 1;
            int const after = forward ? instruction.stage + 1 : instruction.stage - 1;
            auto const made = [&](int stage) -> Time& {
                return (forward ? activations
                                : gradients)[schedule.cell(stage, instruction.micro_batch, instruction.slice)];
            };

            Time start = now[index(rank)];
            if (exists(before)) {
                Time const input = made(before);
                if (input == not_yet) break; // the rank that makes it puts this one back on the list
                start = std::max(start, input + (rank_of(before) == rank ? 0 : costs.message));
            }
            Time const end = start + costs.of(instruction.stage).of(instruction.operation);
            visit(rank, at, start, end);
            now[index(rank)] = end;
            if (passes_on) made(instruction.stage) = end;
            if (exists(after) && rank_of(after) != rank) work.push_back(rank_of(after));
        }
    }
    for (int rank = 0; rank < schedule.ranks(); ++rank)
        if (next[index(rank)] != schedule.instructions[index(rank)].size()) return false;
    return true;
}

} // namespace pentad::pipeline
