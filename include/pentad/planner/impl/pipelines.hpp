// The functions of <pentad/planner/pipelines.hpp>.
#pragma once

#include <pentad/planner/pipelines.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/validator.hpp>
#include <pentad/planner/pairs.hpp>

#include <utility>

namespace pentad::planner {

PENTAD_INLINE pipeline::Schedule const& Pipelines::schedule(Strategy const& c, std::int64_t count) {
    auto const key = std::tuple(c.schedule, c.pp, c.chunks, c.pairs, count);
    auto found = made_.find(key);
    if (found == made_.end()) {
        auto schedule = pipeline::generate(c.schedule, {.ranks = static_cast<int>(c.pp),
                                                        .micro_batches = static_cast<int>(count),
                                                        .chunks = static_cast<int>(c.chunks),
                                                        .pairs = has_pairs(c)});
        found = made_.emplace(key, pipeline::proven(std::move(schedule))).first;
    }
    return found->second;
}

PENTAD_INLINE Run Pipelines::run(Strategy const& c, pipeline::Costs const& costs, double sharing) {
    auto const some = shown(c, 2), more = shown(c, 3);
    Run run{.simulation = pipeline::simulate_proven(schedule(c, more), costs)};
    auto makespan = static_cast<double>(run.simulation.makespan);
    for (auto const& rank : run.simulation.ranks) run.hidden.push_back(static_cast<double>(rank.hidden) * 1e-9);
    if (auto const rest = c.micro_batches - more; rest > 0) {
        auto const fewer = pipeline::simulate_proven(schedule(c, some), costs);
        auto const before = static_cast<double>(fewer.makespan);
        for (std::size_t rank = 0; rank < run.hidden.size(); ++rank)
            run.hidden[rank] += static_cast<double>(run.simulation.ranks[rank].hidden - fewer.ranks[rank].hidden) *
                                1e-9 * static_cast<double>(rest) / static_cast<double>(more - some);
        double pace = (makespan - before) / static_cast<double>(more - some);
        for (auto const& rank : run.simulation.ranks) // which no rank can go beyond
            pace = std::max(pace, static_cast<double>(rank.busy) / static_cast<double>(more));
        makespan += pace * static_cast<double>(rest);
    }
    double busy = 0; // of a rank on average
    for (auto const& rank : run.simulation.ranks)
        busy += static_cast<double>(rank.busy) * static_cast<double>(c.micro_batches) /
                static_cast<double>(more * static_cast<std::int64_t>(run.simulation.ranks.size()));
    run.seconds = (makespan - sharing * (makespan - busy)) * 1e-9;
    return run;
}

PENTAD_INLINE std::vector<std::vector<HeldMoment>> const& Pipelines::held(Strategy const& c) {
    auto const key = std::tuple(c.schedule, c.pp, c.chunks, c.pairs, shown(c, 3));
    auto found = held_.find(key);
    if (found == held_.end()) found = held_.emplace(key, held_moments(schedule(c))).first;
    return found->second;
}

} // namespace pentad::planner
