// What the ranks of a pipeline compute and when, as bars: planned by a schedule or measured in a run
// (measured_chart.hpp). chart_text.hpp and chart_svg.hpp draw both alike.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/simulator.hpp>
#include <pentad/pipeline/timing.hpp>
#include <pentad/report/format.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
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

    [[nodiscard]] pipeline::Time end() const;
    /// 0 for the first stages of the model, shades - 1 for the last.
    [[nodiscard]] int shade_of(int stage) const { return static_cast<int>(std::int64_t{stage} * shades / stages); }
};

/// What a schedule that the validator accepts does in these times.
PipelineChart planned_chart(pipeline::Schedule const& schedule, pipeline::Costs const& costs, std::string title);

/// The times of the ranks, without memory: the bubble of a measured chart has the definition of a simulated one.
pipeline::Simulation times_of(PipelineChart const& chart);

/// What the two pictures share.
namespace detail {

struct Colour {
    int red, green, blue;
};

/// Forward blue, backward green, its data part teal, its weight part orange, recompute violet, optimizer step red; the
/// later a stage of the rank, the darker.
Colour colour_of(PipelineChart const& chart, pipeline::Operation operation, int shade);
/// Whether white is easier to read on it than black.
inline bool is_dark(Colour colour) { return 3 * colour.red + 6 * colour.green + colour.blue < 1350; }

/// "3", where there are slices "3.1"
inline std::string number_text(PipelineChart const& chart, pipeline::Instruction const& instruction) {
    auto const number = std::to_string(instruction.micro_batch);
    return chart.slices > 1 ? number + "." + std::to_string(instruction.slice) : number;
}

/// What the charts have bars of, in the order of the operations.
std::vector<pipeline::Operation> operations_of(std::span<PipelineChart const> charts);

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
pipeline::Time width_of(std::span<PipelineChart const> charts, PipelineChart const& chart);

} // namespace detail

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/pipeline_chart.hpp>
#endif
