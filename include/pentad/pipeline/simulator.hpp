// Times a schedule: when each rank starts and ends, how much of that is waiting, and
// how much memory its activations take.
#pragma once

#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/timing.hpp>
#include <pentad/pipeline/validator.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace pentad::pipeline {

struct RankTimes {
    Time start = 0;               ///< of its first compute
    Time end = 0;                 ///< of its last
    Time busy = 0;                ///< computing
    Time hidden = 0;              ///< what its pairs would take longer as computes one after the other
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
    [[nodiscard]] double bubble() const;
    [[nodiscard]] std::int64_t peak_memory() const {
        std::int64_t peak = 0;
        for (RankTimes const& rank : ranks) peak = std::max(peak, rank.peak_memory);
        return peak;
    }
};

/// Times one run of a schedule that the validator has accepted. Sends do not hold up their rank: that a rank may have
/// to wait for a buffer is left out. Operations of whole stages take no time.
Simulation simulate_proven(Schedule const& schedule, Costs const& costs = {});

/// Times one run of a schedule, which is proven first. @throws std::invalid_argument with the validator's message
inline Simulation simulate(Schedule const& schedule, Costs const& costs = {}) {
    if (auto const verdict = validate(schedule); verdict.refusal)
        throw std::invalid_argument("cannot time the schedule " + schedule.name + ": " + verdict.refusal->message());
    return simulate_proven(schedule, costs);
}

} // namespace pentad::pipeline

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/pipeline/impl/simulator.hpp>
#endif
