// A plan as C++ to paste: its mesh, layouts and strategies as types, and the rest as a RunSettings.
#pragma once

#include <pentad/planner/model.hpp>
#include <pentad/strategy/strategy.hpp>

#include <string>

namespace pentad::report {

namespace detail {

std::string_view context_type(ContextStrategy strategy);

} // namespace detail

/// A namespace `plan` of types and values that compiles with pentad/pentad.hpp.
std::string plan_types(planner::Model const& model, Strategy const& c);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/plan_types.hpp>
#endif
