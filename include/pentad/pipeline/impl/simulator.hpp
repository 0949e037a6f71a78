// The functions of <pentad/pipeline/simulator.hpp>.
#pragma once

#include <pentad/pipeline/simulator.hpp>

#include <pentad/mesh/inline.hpp>

#include <cstddef>
#include <string>

namespace pentad::pipeline {

PENTAD_INLINE double Simulation::bubble() const {
    Time work = 0;
    for (RankTimes const& rank : ranks) work += rank.busy;
    if (span() == 0) return 0;
    return 1 - static_cast<double>(work) / (static_cast<double>(span()) * static_cast<double>(ranks.size()));
}

PENTAD_INLINE Simulation simulate_proven(Schedule const& schedule, Costs const& costs) {
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
        if (at == 0 || !schedule.instructions[rank][at - 1].paired) {
            mine.busy += end - start;
            mine.hidden -= instruction.paired ? end - start : 0;
        }
        if (instruction.paired || (at > 0 && schedule.instructions[rank][at - 1].paired))
            mine.hidden += costs.of(instruction);
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

} // namespace pentad::pipeline
