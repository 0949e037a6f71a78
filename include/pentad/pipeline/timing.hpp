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
    /// What each of the three waits for exchanges, while the other one of a pair may compute.
    Time forward_exchanges = 0, backward_data_exchanges = 0, backward_weight_exchanges = 0;
    std::int64_t activation = 1;  ///< memory from its forward to the end of its backward
    std::int64_t weight_part = 1; ///< what is left of it between backward_data and backward_weight
    std::int64_t input = 0;       ///< what is held instead from forward to recompute

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
    [[nodiscard]] constexpr Time exchanges_of(Operation operation) const {
        Time exchanges = operation == Operation::forward ? forward_exchanges : 0;
        if (makes_gradient(operation)) exchanges += backward_data_exchanges;
        if (ends_micro_batch(operation)) exchanges += backward_weight_exchanges;
        return exchanges;
    }
};

struct Costs {
    std::vector<StageCost> stages{StageCost{}}; ///< one for each stage, or one for all
    Time message = 0;                           ///< from its send to its arrival

    [[nodiscard]] StageCost const& of(int stage) const {
        return stages.size() == 1 ? stages[0] : stages[static_cast<std::size_t>(stage)];
    }
    [[nodiscard]] Time of(Instruction const& x) const { return of(x.stage).of(x.operation); }
    /// The time of a pair: its computes one after the other, its exchanges, or the longer of its two instructions,
    /// whichever takes longest.
    [[nodiscard]] Time of(Instruction const& forward, Instruction const& backward) const {
        Time const sum = of(forward) + of(backward);
        Time const exchanges =
            of(forward.stage).exchanges_of(forward.operation) + of(backward.stage).exchanges_of(backward.operation);
        return std::max({sum - exchanges, exchanges, of(forward), of(backward)});
    }
};

/// Calls visit(rank, position, start, end) for each instruction that is not a message, rank by rank in order: each
/// starts when its rank is free and its input there; the two of a pair start and end together. Sends do not hold up
/// their rank; messages need not be in the schedule. Instructions must be of stages, micro-batches and slices that
/// exist. True when everything ran, false when
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
        auto const is_there = [&](int stage) { return stage >= 0 && stage < schedule.stages(); };
        auto const passes_on = [](Instruction const& x) {
            return x.operation == Operation::forward || makes_gradient(x.operation);
        };
        auto const made = [&](Instruction const& x, int stage) -> Time& {
            return (x.operation == Operation::forward ? activations
                                                      : gradients)[schedule.cell(stage, x.micro_batch, x.slice)];
        };
        // When the input of a compute is there.
        auto const input = [&](Instruction const& x) -> Time {
            int const before = x.operation == Operation::forward ? x.stage - 1 : x.stage + 1;
            if (!passes_on(x) || !is_there(before)) return 0;
            Time const time = made(x, before);
            return time == not_yet || schedule.rank_of(before, x.micro_batch) == rank ? time : time + costs.message;
        };
        auto const finish = [&](Instruction const& x, Time end) {
            if (!passes_on(x)) return;
            made(x, x.stage) = end;
            int const after = x.operation == Operation::forward ? x.stage + 1 : x.stage - 1;
            if (is_there(after) && schedule.rank_of(after, x.micro_batch) != rank)
                work.push_back(schedule.rank_of(after, x.micro_batch));
        };
        for (auto& at = next[index(rank)]; at < instructions.size(); ++at) {
            Instruction const& x = instructions[at];
            if (is_send(x.operation) || is_receive(x.operation)) continue;
            Instruction const* const other = x.paired && at + 1 < instructions.size() ? &instructions[at + 1] : nullptr;
            Time const first = input(x), second = other != nullptr ? input(*other) : 0;
            if (first == not_yet || second == not_yet) break; // the rank that makes it puts this one back on the list
            Time const start = std::max({now[index(rank)], first, second});
            Time const end = start + (other != nullptr ? costs.of(x, *other) : costs.of(x));
            visit(rank, at, start, end);
            if (other != nullptr) visit(rank, ++at, start, end);
            now[index(rank)] = end;
            finish(x, end);
            if (other != nullptr) finish(*other, end);
        }
    }
    for (int rank = 0; rank < schedule.ranks(); ++rank)
        if (next[index(rank)] != schedule.instructions[index(rank)].size()) return false;
    return true;
}

} // namespace pentad::pipeline
