// What a pipeline really did, from the timeline of a run (report/timeline.hpp): the bars of its last
// step, and the times that a schedule can be planned with.
#pragma once

#include <pentad/pipeline/timing.hpp>
#include <pentad/report/pipeline_chart.hpp>

#include <filesystem>
#include <vector>

namespace pentad::report {

/// The last step that is whole in a trace of train_lm, whose ranks compute what the planned chart says in its order;
/// times in nanoseconds from its first compute. `processes` are the trace's processes that are the pipeline's ranks, in
/// order; empty: all that take part in a pipeline. Throws FileError where there is no such step.
PipelineChart measured_chart(std::filesystem::path const& path, PipelineChart const& planned,
                             std::vector<int> processes = {});

/// Sets what computes take to what they took in a measured chart: of each kind and stage the median.
void set_times(pipeline::Costs& costs, PipelineChart const& measured);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/measured_chart.hpp>
#endif
