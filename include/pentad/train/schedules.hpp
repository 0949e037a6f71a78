// The schedules that a trainer runs, proven before it is made.
#pragma once

#include <pentad/pipeline/messages.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/validator.hpp>

#include <utility>

namespace pentad::train {

/// The schedule of a step, and forwards alone through the same stages: all accepted by the validator.
class ProvenSchedules {
  public:
    /// @throws std::invalid_argument when the validator refuses the schedule
    explicit ProvenSchedules(pipeline::Schedule schedule)
        : training_(pipeline::proven(std::move(schedule))),
          evaluation_(pipeline::proven(pipeline::forwards_of(training_, training_.micro_batches))),
          generation_(pipeline::proven(pipeline::forwards_of(training_, 1, 1))) {}

    [[nodiscard]] pipeline::Schedule const& training() const { return training_; }
    /// Forwards of all micro-batches of a step.
    [[nodiscard]] pipeline::Schedule const& evaluation() const { return evaluation_; }
    /// Forwards of one micro-batch of whole sequences.
    [[nodiscard]] pipeline::Schedule const& generation() const { return generation_; }

  private:
    pipeline::Schedule training_, evaluation_, generation_;
};

} // namespace pentad::train
