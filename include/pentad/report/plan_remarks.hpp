// What the published guidelines say of a plan, each with its reason in the plan's own numbers.
#pragma once

#include <pentad/planner/hardware.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/strategy/strategy.hpp>

#include <string>
#include <vector>

namespace pentad::report {

/// A sentence about a plan, and whether the plan follows the guideline that it is about.
struct Remark {
    bool follows = true;
    std::string text;
};

/// The remarks that bear on a plan, in no order of weight. @throws std::invalid_argument where it is none (misfit())
std::vector<Remark> plan_remarks(planner::Model const& model, planner::Hardware const& hardware, Strategy const& c);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/plan_remarks.hpp>
#endif
