// The machine that the ranks run on, measured: apart, since it alone needs Kokkos.
#pragma once

#include <pentad/planner/hardware.hpp>

namespace pentad_plan {

/// Starts Kokkos and measures. Collective over all ranks.
pentad::planner::Hardware measured_machine();

} // namespace pentad_plan
