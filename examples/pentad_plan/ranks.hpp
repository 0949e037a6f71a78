// The ranks on which this was started, of which one answers; and the machine that they run on, measured.
#pragma once

#include <pentad/planner/hardware.hpp>

#include <memory>

namespace pentad_plan {

/// MPI, for as long as it lives. Made where --measure needs it or a launcher has started several ranks, and nowhere
/// else: on the login node of a cluster MPI may not be started.
class Ranks {
  public:
    Ranks(int& argc, char**& argv);
    Ranks(Ranks const&) = delete;
    Ranks& operator=(Ranks const&) = delete;
    ~Ranks();

    /// Whether a launcher of MPI programs has started this one, by what it leaves in the environment.
    static bool are_launched();

    [[nodiscard]] bool is_first() const;
    /// The first rank's value, for all; who waits leaves the processor to others. Collective.
    [[nodiscard]] int of_first(int value) const;
    /// A machine of as many devices.
    [[nodiscard]] pentad::planner::Hardware any() const;
    /// This machine. Ends the job where a rank cannot measure. Collective.
    [[nodiscard]] pentad::planner::Hardware machine() const;

  private:
    struct Library;
    std::unique_ptr<Library> library_;
};

} // namespace pentad_plan
