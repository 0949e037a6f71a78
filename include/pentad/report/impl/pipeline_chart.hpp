// The functions of <pentad/report/pipeline_chart.hpp>.
#pragma once

#include <pentad/report/pipeline_chart.hpp>

#include <pentad/mesh/inline.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace pentad::report {

PENTAD_INLINE pipeline::Time PipelineChart::end() const {
    pipeline::Time last = 0;
    for (auto const& bars : ranks)
        if (!bars.empty()) last = std::max(last, bars.back().end);
    return last;
}

PENTAD_INLINE PipelineChart planned_chart(pipeline::Schedule const& schedule, pipeline::Costs const& costs,
                                          std::string title) {
    PipelineChart chart{.title = std::move(title), .stages = schedule.stages(), .slices = schedule.slices};
    chart.ranks.resize(static_cast<std::size_t>(schedule.ranks()));
    std::vector<int> mine(chart.ranks.size()); // stages of each rank, once where two placements put one there
    for (std::size_t stage = 0; stage < static_cast<std::size_t>(chart.stages); ++stage)
        for (std::size_t at = 0; at < schedule.placements.size(); ++at) {
            int const rank = schedule.placements[at][stage];
            bool const is_new =
                std::none_of(schedule.placements.begin(), schedule.placements.begin() + static_cast<std::ptrdiff_t>(at),
                             [&](auto const& before) { return before[stage] == rank; });
            if (is_new) chart.shades = std::max(chart.shades, ++mine[static_cast<std::size_t>(rank)]);
        }
    pipeline::run_in_time(schedule, costs, [&](int rank, std::size_t at, pipeline::Time start, pipeline::Time end) {
        auto const& list = schedule.instructions[static_cast<std::size_t>(rank)];
        auto const& instruction = list[at];
        // A pair is two bars: how they take turns is not known.
        auto const middle = [&](auto const& forward, auto const& backward) {
            auto const first = costs.of(forward), both = first + costs.of(backward);
            return both == 0 ? end : start + (end - start) * first / both;
        };
        if (instruction.paired) end = middle(instruction, list[at + 1]);
        if (at > 0 && list[at - 1].paired) start = middle(list[at - 1], instruction);
        if (pipeline::is_compute(instruction.operation) || instruction.operation == pipeline::Operation::optimizer_step)
            chart.ranks[static_cast<std::size_t>(rank)].push_back({instruction, start, end});
    });
    return chart;
}

PENTAD_INLINE pipeline::Simulation times_of(PipelineChart const& chart) {
    pipeline::Simulation result;
    for (auto const& bars : chart.ranks) {
        auto& rank = result.ranks.emplace_back();
        for (Bar const& bar : bars) {
            if (!pipeline::is_compute(bar.instruction.operation)) continue;
            if (rank.busy == 0) rank.start = bar.start;
            rank.busy += bar.end - bar.start;
            rank.end = bar.end;
        }
        result.makespan = std::max(result.makespan, rank.end);
    }
    return result;
}

} // namespace pentad::report

namespace pentad::report::detail {

PENTAD_INLINE Colour colour_of(PipelineChart const& chart, pipeline::Operation operation, int shade) {
    static constexpr std::array<std::pair<Colour, Colour>, 6> palette{{{{158, 202, 242}, {31, 98, 172}},
                                                                       {{168, 219, 168}, {36, 122, 66}},
                                                                       {{150, 221, 213}, {15, 118, 115}},
                                                                       {{253, 209, 138}, {214, 106, 16}},
                                                                       {{214, 198, 240}, {112, 72, 178}},
                                                                       {{200, 30, 50}, {200, 30, 50}}}};
    auto const& [light, dark] = palette[std::min(static_cast<std::size_t>(operation), palette.size() - 1)];
    double const depth = chart.shades < 2 ? 0.3 : static_cast<double>(shade) / static_cast<double>(chart.shades - 1);
    auto const mix = [&](int from, int to) {
        return static_cast<int>(std::lround(from + depth * static_cast<double>(to - from)));
    };
    return {mix(light.red, dark.red), mix(light.green, dark.green), mix(light.blue, dark.blue)};
}

PENTAD_INLINE std::vector<pipeline::Operation> operations_of(std::span<PipelineChart const> charts) {
    std::array<bool, pipeline::operation_names.size()> seen{};
    for (PipelineChart const& chart : charts)
        for (auto const& bars : chart.ranks)
            for (Bar const& bar : bars) seen[static_cast<std::size_t>(bar.instruction.operation)] = true;
    std::vector<pipeline::Operation> operations;
    for (std::size_t at = 0; at < seen.size(); ++at)
        if (seen[at]) operations.push_back(static_cast<pipeline::Operation>(at));
    return operations;
}

PENTAD_INLINE pipeline::Time width_of(std::span<PipelineChart const> charts, PipelineChart const& chart) {
    pipeline::Time longest = 1;
    for (PipelineChart const& other : charts)
        if (other.unit == chart.unit) longest = std::max(longest, other.end());
    return longest;
}

} // namespace pentad::report::detail
