#include <pentad/train/machine.hpp>

template pentad::planner::Hardware pentad::train::measured_machine(Kokkos::DefaultExecutionSpace const&);
