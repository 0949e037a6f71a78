// The machine that this runs on, measured under mpiexec.
#pragma once

#include <pentad/planner/hardware.hpp>

#include <memory>

namespace pentad_plan {

/// MPI and Kokkos, for as long as it lives: --measure needs them, nothing else does.
class Measurement {
  public:
    Measurement(int& argc, char**& argv);
    ~Measurement();

    /// Which of the ranks talks.
    [[nodiscard]] bool is_first() const;
    /// A machine of as many devices.
    [[nodiscard]] pentad::planner::Hardware any() const;
    /// Collective.
    [[nodiscard]] pentad::planner::Hardware machine() const;

  private:
    struct Libraries;
    std::unique_ptr<Libraries> libraries_;
};

} // namespace pentad_plan
