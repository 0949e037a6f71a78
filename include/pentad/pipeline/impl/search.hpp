// The functions of <pentad/pipeline/search.hpp>.
#pragma once

#include <pentad/pipeline/search.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/messages.hpp>
#include <pentad/pipeline/search/beam.hpp>
#include <pentad/pipeline/search/problem.hpp>
#include <pentad/pipeline/simulator.hpp>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::pipeline::search {

/// By how much a schedule is above the limit of a rank.
struct Excess {
    std::int64_t above, peak;
    std::size_t rank;
};

PENTAD_INLINE Schedule one_by_one(Schedule empty) {
    for (int i = 0; i < empty.micro_batches; ++i) {
        auto const add = [&](Operation operation, int stage) {
            empty.instructions[static_cast<std::size_t>(empty.rank_of(stage, i))].push_back({operation, stage, i});
        };
        for (int stage = 0; stage < empty.stages(); ++stage) add(Operation::forward, stage);
        for (int stage = empty.stages(); stage-- > 0;) add(Operation::backward, stage);
    }
    return empty;
}

PENTAD_INLINE std::vector<std::vector<std::vector<int>>> placements(int ranks, int chunks, bool two_copies) {
    std::vector<std::vector<std::vector<int>>> all{{order::looped(ranks, chunks)}};
    if (chunks > 1 && ranks > 1) all.push_back({order::back_and_forth(ranks, chunks)});
    for (std::size_t at = 0, single = all.size(); two_copies && ranks > 1 && at < single; ++at) {
        std::vector<int> other = all[at][0];
        for (int& rank : other) rank = ranks - 1 - rank;
        all.push_back({all[at][0], other});
    }
    return all;
}

} // namespace pentad::pipeline::search

namespace pentad::pipeline {

PENTAD_INLINE Automatic automatic(GeneratorOptions options, Costs const& costs, SearchOptions const& search_options) {
    auto const refuse = [](std::string const& why) { throw std::invalid_argument("automatic " + why); };
    int const p = options.ranks, m = options.micro_batches;
    if (p < 1 || m < 1)
        refuse("needs at least one rank and one micro-batch, not " + std::to_string(p) + " and " + std::to_string(m));
    if (options.slices != 1 || options.updates != 0) refuse("is a step of whole sequences: no slices, no updates");
    if (options.chunks == 0) options.chunks = std::max(1, static_cast<int>(costs.stages.size()) / p);
    if (options.chunks < 1) refuse("needs at least one chunk a rank, not " + std::to_string(options.chunks));
    if (int const stages = p * options.chunks;
        costs.stages.size() != 1 && costs.stages.size() != static_cast<std::size_t>(stages))
        refuse("needs costs of one stage or of each of " + std::to_string(stages) + ", not of " +
               std::to_string(costs.stages.size()));
    auto limits = search_options.memory;
    if (limits.empty()) limits = {std::numeric_limits<std::int64_t>::max() / 4};
    if (limits.size() == 1) limits.resize(static_cast<std::size_t>(p), limits[0]);
    if (limits.size() != static_cast<std::size_t>(p))
        refuse("needs one limit of memory or one for each of " + std::to_string(p) + " ranks, not " +
               std::to_string(limits.size()));

    Automatic best{.schedule = {}, .makespan = search::never, .optimal = true};
    // Takes an order of computes if it fits and is the fastest so far. Returns by how much a rank, the worst of all, is
    // above its limit.
    auto const consider = [&](Schedule order) {
        if (options.recompute) order = with_recomputation(std::move(order));
        auto const simulation = simulate(with_messages(order), costs);
        search::Excess excess{.above = 0, .peak = 0, .rank = 0};
        for (std::size_t rank = 0; rank < limits.size(); ++rank)
            if (auto const peak = simulation.ranks[rank].peak_memory; peak - limits[rank] > excess.above)
                excess = {peak - limits[rank], peak, rank};
        if (excess.above == 0 && simulation.makespan < best.makespan) {
            best.makespan = simulation.makespan;
            best.schedule = std::move(order);
        }
        return excess;
    };

    std::vector<Schedule> beginnings;
    search::Excess least{.above = std::numeric_limits<std::int64_t>::max(), .peak = 0, .rank = 0};
    for (auto& placements : search::placements(p, options.chunks, search_options.two_copies)) {
        Schedule empty = order::empty("automatic", p, m, std::move(placements));
        empty.recomputes = options.recompute;
        search::Excess const excess = consider(search::one_by_one(empty));
        if (excess.above < least.above) least = excess;
        if (excess.above == 0) beginnings.push_back(std::move(empty));
    }
    if (beginnings.empty())
        refuse("needs memory for one micro-batch at least: that takes " + std::to_string(least.peak) + " on rank " +
               std::to_string(least.rank) + ", whose limit is " + std::to_string(limits[least.rank]) +
               (options.recompute ? "" : "; recomputation takes less"));

    for (Generator const& generator : generators) {
        if (!generator.is_defined(p, options.chunks)) continue;
        Schedule order = generator.order(options);
        if (order.delay.empty() && (order.placements.size() == 1 || search_options.two_copies))
            consider(std::move(order));
    }

    double walks = 0; // done
    for (Schedule const& beginning : beginnings) {
        search::Problem const problem(beginning, costs, limits);
        std::size_t const width = search_options.states / (2 * beginnings.size() * problem.length);
        bool complete = false;
        auto const progress = [&](double part) {
            if (search_options.progress)
                search_options.progress((walks + part) / (2 * static_cast<double>(beginnings.size())));
        };
        for (auto const guide : {search::Guide::ranks_and_stages, search::Guide::ranks}) {
            auto walk = search::walk(problem, guide, width, best.makespan, progress);
            walks += 1;
            if (walk.order) consider(std::move(*walk.order));
            complete = complete || walk.complete;
            if (complete) break;
        }
        best.optimal = best.optimal && complete;
    }
    best.schedule = with_messages(with_stage_operations(std::move(best.schedule), options.stage_operations));
    return best;
}

} // namespace pentad::pipeline
