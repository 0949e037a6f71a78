// Charts of a pipeline for a terminal: a line for each rank, with colours or without.
//
//     rank 0  F0F1    B0--    B1--
//     rank 1    F0B0--F1B1--
#pragma once

#include <pentad/report/pipeline_chart.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace pentad::report {

struct TextStyle {
    std::size_t columns = 80;
    bool colours = false; ///< without them a letter says what is computed, as in the text form of schedules
};

namespace detail {

/// The nearest of a terminal's 256 colours as background, and one that can be read on it.
std::string on(Colour colour);

} // namespace detail

/// The charts one above the other. The first has the room of its bars, cut where that is more than there is; charts of
/// the same unit have its scale, others its width. At least one chart.
std::string chart_text(std::span<PipelineChart const> charts, TextStyle style);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/chart_text.hpp>
#endif
