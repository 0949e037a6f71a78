// Plans as a picture: the memory of the fullest rank against the MFU, the front and the limit.
#pragma once

#include <pentad/planner/search.hpp>

#include <string>

namespace pentad::report {

std::string plan_svg(planner::Findings const& findings, planner::Hardware const& hardware);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/plan_svg.hpp>
#endif
