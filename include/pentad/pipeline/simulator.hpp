// Times a schedule: when each rank starts and ends, how much of that is waiting, and
// how much memory its activations take.
#pragma once

#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/timing.hpp>
#include <pentad/pipeline/validator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::pipeline {

struct RankTimes {
    Time start = 0;               ///< of its first compute
    Time end = 0;                 ///< of its last
    Time busy = 0;                ///< computing
    std::int64_t peak_memory = 0; ///< of activations, in the unit of the costs
};

struct Simulation {
    std::vector<RankTimes> ranks;
    Time makespan = 0; ///< the last end

    /// The longest time of a rank from its start to its end.
    [[nodiscard]] Time span() const {
        Time longest = 0;
        for (RankTimes const& rank : ranks) longest = std::max(longest, rank.end - rank.start);
        return longest;
    }
    /// The part of the longest rank's time that ranks, on average, wait: 1 - work / span.
    [[nodiscard]] double bubble() const {
        Time work = 0;
        for (RankTimes const& rank : ranks) work += rank.busy;
        if (span() == 0) return 0;
        return 1 - static_cast<double>(work) / (static_cast<double>(span()) * static_cast<double>(ranks.size()));
    }
    [[nodiscard]] std::int64_t peak_memory() const {
        std::int64_t peak = 0;
        for (RankTimes const& rank : ranks) peak = std::max(peak, rank.peak_memory);
        return peak;
    }
};

/// Times one run of a schedule that the validator has accepted. Sends do not hold up their rank: that a rank may have
/// to wait for a buffer is left out. Operations of whole stages take no time.
inline Simulation simulate_proven(Schedule const& schedule, Costs const& costs = {}) {
    if (costs.stages.size() != 1 && costs.stages.size() != static_cast<std::size_t>(schedule.stages()))
        throw std::invalid_argument("costs are for one stage or for each of " + std::to_string(schedule.stages()) +
                                    ", not for " + std::to_string(costs.stages.size()));

    Simulation result;
    result.ranks.resize(static_cast<std::size_t>(schedule.ranks()));
    std::vector<std::int64_t> held(result.ranks.size());
    std::vector<bool> started(result.ranks.size());
    run_in_time(schedule, costs, [&](int number, std::size_t at, Time start, Time end) {
        auto const rank = static_cast<std::size_t>(number);
        auto const& instruction = schedule.instructions[rank][at];
        if (!is_compute(instruction.operation)) return;
        auto& mine = result.ranks[rank];
        if (!started[rank]) mine.start = start;
        started[rank] = true;
        mine.busy += end - start;
        mine.end = end;
        result.makespan = std::max(result.makespan, end);

        StageCost const& cost = costs.of(instruction.stage);
        switch (instruction.operation) {
        case Operation::forward:
            held[rank] += schedule.recomputes ? cost.input : cost.activation;
            break;
        case Operation::recompute:
            held[rank] += cost.activation - cost.input;
            break;
        case Operation::backward_data:
            held[rank] -= cost.activation - cost.weight_part;
            break;
        default:
            held[rank] -= instruction.operation == Operation::backward ? cost.activation : cost.weight_part;
        }
        mine.peak_memory = std::max(mine.peak_memory, held[rank]);
        if (schedule.purpose == Purpose::inference) held[rank] = 0;
    });
    return result;
}

/// The same, proven first. @throws std::invalid_argument with the validator's message
inline Simulation simulate(Schedule const& schedule, Costs const& costs = {}) {
    if (auto const verdict = validate(schedule); verdict.refusal)
        throw std::invalid_argument("cannot time the schedule " + schedule.name + ": " + verdict.refusal->message());
    return simulate_proven(schedule, costs);
}

} // namespace pentad::pipeline
