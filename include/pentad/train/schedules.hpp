// Room: train. The schedules that a trainer runs, proven before it is made.
#pragma once

#include <pentad/pipeline/messages.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/validator.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::train {

/// The schedule of a step, and forwards alone through the same stages: all accepted by the validator.
class ProvenSchedules {
  public:
    /// @throws std::invalid_argument when the validator refuses the schedule
    explicit ProvenSchedules(pipeline::Schedule schedule)
        : training_(proven(std::move(schedule))),
          evaluation_(proven(pipeline::forwards_of(training_, training_.micro_batches))),
          sampling_(proven(pipeline::forwards_of(training_, 1))) {}

    [[nodiscard]] pipeline::Schedule const& training() const { return training_; }
    /// Of as many micro-batches.
    [[nodiscard]] pipeline::Schedule const& evaluation() const { return evaluation_; }
    /// Of one micro-batch.
    [[nodiscard]] pipeline::Schedule const& sampling() const { return sampling_; }

  private:
    static pipeline::Schedule proven(pipeline::Schedule schedule) {
        if (auto const verdict = pipeline::validate(schedule); verdict.refusal)
            throw std::invalid_argument("the schedule " + schedule.name + ": " + verdict.refusal->message());
        return schedule;
    }

    pipeline::Schedule training_, evaluation_, sampling_;
};

} // namespace pentad::train
