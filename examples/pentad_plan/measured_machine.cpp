#include "measured_machine.hpp"

#include <pentad/train/machine.hpp>

#include <Kokkos_Core.hpp>

namespace pentad_plan {

pentad::planner::Hardware measured_machine() {
    return pentad::train::measured_machine(Kokkos::DefaultExecutionSpace());
}

} // namespace pentad_plan
