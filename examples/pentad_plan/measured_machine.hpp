// The machine that the ranks run on, measured.
#pragma once

#include <pentad/planner/hardware.hpp>

namespace pentad_plan {

/// With Kokkos started. Collective over all ranks.
pentad::planner::Hardware measured_machine();

} // namespace pentad_plan
