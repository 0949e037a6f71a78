// What the ranks of a pipeline compute and when, as bars: planned by a schedule or measured in a run
// (measured_chart.hpp). chart_text.hpp and chart_svg.hpp draw both alike.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/simulator.hpp>
#include <pentad/pipeline/timing.hpp>
#include <pentad/report/format.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pentad::report {

/// A compute, or (of no length) an optimizer step.
struct Bar {
    pipeline::Instruction instruction;
    pipeline::Time start;
    pipeline::Time end;
};

struct PipelineChart {
    std::string title;
    int stages = 0;
    int shades = 0; ///< most stages that a rank has
    int slices = 1;
    std::vector<std::vector<Bar>> ranks{}; ///< of each rank, in the order of their times, from 0 on
    double unit = 0;                       ///< of the times, in seconds; 0: they have none

    [[nodiscard]] pipeline::Time end() const {
        pipeline::Time last = 0;
        for (auto const& bars : ranks)
            if (!bars.empty()) last = std::max(last, bars.back().end);
        return last;
    }
    /// 0 for the first stages of the model, shades - 1 for the last.
    [[nodiscard]] int shade_of(int stage) const { return static_cast<int>(std::int64_t{stage} * shades / stages); }
};

/// What a schedule that the validator accepts does in these times.
inline PipelineChart planned_chart(pipeline::Schedule const& schedule, pipeline::Costs const& costs,
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
        auto const& instruction = schedule.instructions[static_cast<std::size_t>(rank)][at];
        if (pipeline::is_compute(instruction.operation) || instruction.operation == pipeline::Operation::optimizer_step)
            chart.ranks[static_cast<std::size_t>(rank)].push_back({instruction, start, end});
    });
    return chart;
}

/// The times of the ranks, without memory: the bubble of a measured chart has the definition of a simulated one.
inline pipeline::Simulation times_of(PipelineChart const& chart) {
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

/// What the two pictures share.
namespace detail {

struct Colour {
    int red, green, blue;
};

/// Forward blue, backward green, its data part teal, its weight part orange, recompute violet, optimizer step red; the
/// later a stage of the rank, the darker.
inline Colour colour_of(PipelineChart const& chart, pipeline::Operation operation, int shade) {
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
/// Whether white is easier to read on it than black.
inline bool is_dark(Colour colour) { return 3 * colour.red + 6 * colour.green + colour.blue < 1350; }

/// "3", where there are slices "3.1"
inline std::string number_text(PipelineChart const& chart, pipeline::Instruction const& instruction) {
    auto const number = std::to_string(instruction.micro_batch);
    return chart.slices > 1 ? number + "." + std::to_string(instruction.slice) : number;
}

/// What the charts have bars of, in the order of the operations.
inline std::vector<pipeline::Operation> operations_of(std::span<PipelineChart const> charts) {
    std::array<bool, pipeline::operation_names.size()> seen{};
    for (PipelineChart const& chart : charts)
        for (auto const& bars : chart.ranks)
            for (Bar const& bar : bars) seen[static_cast<std::size_t>(bar.instruction.operation)] = true;
    std::vector<pipeline::Operation> operations;
    for (std::size_t at = 0; at < seen.size(); ++at)
        if (seen[at]) operations.push_back(static_cast<pipeline::Operation>(at));
    return operations;
}

/// The shortest step of 1, 2, 5, 10, ... that a span has at most `most` of.
inline pipeline::Time tick_step(pipeline::Time span, double most) {
    for (pipeline::Time ten = 1;; ten *= 10)
        for (pipeline::Time const step : {ten, 2 * ten, 5 * ten})
            if (static_cast<double>(span) <= static_cast<double>(step) * std::max(most, 1.0)) return step;
}
inline std::string tick_text(PipelineChart const& chart, pipeline::Time time) {
    return time == 0 || chart.unit == 0 ? std::to_string(time) : duration(static_cast<double>(time) * chart.unit);
}

/// The time that the width of the picture stands for in a chart: charts of one unit have one scale.
inline pipeline::Time width_of(std::span<PipelineChart const> charts, PipelineChart const& chart) {
    pipeline::Time longest = 1;
    for (PipelineChart const& other : charts)
        if (other.unit == chart.unit) longest = std::max(longest, other.end());
    return longest;
}

} // namespace detail

} // namespace pentad::report
