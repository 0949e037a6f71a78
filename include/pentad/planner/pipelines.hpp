// Schedules for as many micro-batches as show how they begin, go on and end: each is
// made and proven once.
#pragma once

#include <pentad/pipeline/simulator.hpp>
#include <pentad/planner/held_moments.hpp>
#include <pentad/strategy/strategy.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace pentad::planner {

/// What a run of a schedule takes.
struct Run {
    pipeline::Simulation simulation; ///< of a run with fewer micro-batches, as full as the whole one
    double seconds = 0;              ///< of the whole run
    std::vector<double> hidden{};    ///< of each rank in the whole run: seconds that its pairs save
};

/// Whether the two parts of backward passes are instructions of their own.
inline bool splits_backward(pipeline::Schedule const& schedule) {
    for (auto const& instruction : schedule.instructions.front())
        if (instruction.operation == pipeline::Operation::backward_data) return true;
    return false;
}

/// Not for several threads at once.
class Pipelines {
  public:
    /// The schedule for up to `count` micro-batches. @throws std::invalid_argument when it is not defined
    pipeline::Schedule const& schedule(Strategy const& c, std::int64_t count);
    /// The one that stands for the configuration's.
    pipeline::Schedule const& schedule(Strategy const& c) { return schedule(c, shown(c, 3)); }

    /// Costs in nanoseconds. Where the run is longer than what is simulated, the rest goes on at the pace that it has
    /// between the second and the third round of the pipeline.
    /// @param sharing of what the ranks compute with: waiting costs so much less
    Run run(Strategy const& c, pipeline::Costs const& costs, double sharing);

    /// The moments at which each rank of the pipeline holds most; they have no room yet.
    std::vector<std::vector<HeldMoment>> const& held(Strategy const& c);

  private:
    /// Micro-batches for so many rounds of the pipeline, and what is left of the last one; even where a schedule goes
    /// both ways.
    static std::int64_t shown(Strategy const& c, std::int64_t rounds) {
        auto const round = c.pp % 2 == 0 ? c.pp : 2 * c.pp;
        return std::min(c.micro_batches, rounds * round + c.micro_batches % round);
    }

    using Key = std::tuple<std::string, std::int64_t, std::int64_t, bool, std::int64_t>;

    std::map<Key, pipeline::Schedule> made_;
    std::map<Key, std::vector<std::vector<HeldMoment>>> held_;
};

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/pipelines.hpp>
#endif
