// Charts of a pipeline as a picture: SVG of few bytes for each bar, which needs no script and no font.
#pragma once

#include <pentad/report/pipeline_chart.hpp>

#include <span>
#include <string>

namespace pentad::report {

/// The charts one above the other, with scales as in chart_text(). Numbers are micro-batches. At least one chart.
std::string chart_svg(std::span<PipelineChart const> charts);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/chart_svg.hpp>
#endif
