// Room: pipeline (pure host C++). Times a schedule: when each rank starts and ends, and how much of that is waiting.
// Times are integers in a unit of the caller's, so that closed forms hold to the unit.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/validator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace pentad::pipeline {

using Time = std::int64_t;

/// What one micro-batch costs on one stage, and a message from its send to its arrival.
struct Times {
    Time forward = 1;
    Time backward = 2;
    Time message = 0;
};

struct RankTimes {
    Time start = 0; ///< of its first compute
    Time end = 0;   ///< of its last
    Time busy = 0;  ///< computing
};

struct Simulation {
    std::vector<RankTimes> ranks;
    Time makespan = 0; ///< the last end

    /// The part of the longest rank's time that ranks, on average, wait: 1 - work / max(end - start).
    [[nodiscard]] double bubble() const {
        Time longest = 0;
        Time work = 0;
        for (RankTimes const& rank : ranks) {
            longest = std::max(longest, rank.end - rank.start);
            work += rank.busy;
        }
        if (longest == 0) return 0;
        return 1 - static_cast<double>(work) / (static_cast<double>(longest) * static_cast<double>(ranks.size()));
    }
};

/// Times one step of a schedule that the validator accepts (others are refused with its message). Sends do not hold up
/// their rank: that a rank may have to wait for a buffer is left out.
inline Simulation simulate(Schedule const& schedule, Times times) {
    if (auto const verdict = validate(schedule); verdict.refusal)
        throw std::invalid_argument("cannot time the schedule " + schedule.name + ": " + verdict.refusal->message());

    auto const index = [](int number) { return static_cast<std::size_t>(number); };
    auto const micro_batches = index(schedule.micro_batches);
    constexpr Time not_yet = -1;
    // When the output of each stage for each micro-batch is there: activations, then gradients.
    std::vector<Time> ready[2];
    for (auto& when : ready) when.assign(index(schedule.stages()) * micro_batches, not_yet);
    auto const output = [&](Operation operation, int stage, int micro_batch) -> Time& {
        return ready[operation == Operation::forward ? 0 : 1][index(stage) * micro_batches + index(micro_batch)];
    };

    Simulation result;
    result.ranks.resize(index(schedule.ranks()));
    std::vector<std::size_t> next(index(schedule.ranks()));
    std::vector<Time> now(index(schedule.ranks()));
    std::vector<int> work(index(schedule.ranks()));
    std::iota(work.rbegin(), work.rend(), 0);
    while (!work.empty()) {
        int const rank = work.back();
        work.pop_back();
        auto const& instructions = schedule.instructions[index(rank)];
        RankTimes& mine = result.ranks[index(rank)];
        for (auto& at = next[index(rank)]; at < instructions.size(); ++at) {
            auto const [operation, stage, micro_batch] = instructions[at];
            if (!is_compute(operation)) continue;
            bool const is_forward = operation == Operation::forward;
            int const before = is_forward ? stage - 1 : stage + 1;
            Time arrival = 0;
            if (before >= 0 && before < schedule.stages()) {
                Time const made = output(operation, before, micro_batch);
                if (made == not_yet) break; // the rank that makes it will put us back on the list
                arrival = made + (schedule.rank_of[index(before)] == rank ? 0 : times.message);
            }
            Time const cost = is_forward ? times.forward : times.backward;
            Time const start = std::max(now[index(rank)], arrival);
            if (mine.busy == 0) mine.start = start;
            mine.busy += cost;
            mine.end = now[index(rank)] = start + cost;
            output(operation, stage, micro_batch) = mine.end;
            int const after = is_forward ? stage + 1 : stage - 1;
            if (after >= 0 && after < schedule.stages() && schedule.rank_of[index(after)] != rank)
                work.push_back(schedule.rank_of[index(after)]);
        }
        result.makespan = std::max(result.makespan, mine.end);
    }
    return result;
}

} // namespace pentad::pipeline
