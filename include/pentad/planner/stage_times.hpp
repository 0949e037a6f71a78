// How long a micro-batch takes in a stage of the pipeline.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/detail/rates.hpp>

#include <algorithm>
#include <vector>

namespace pentad::planner {

/// Where the time of the slowest rank goes, in seconds of a step.
struct Shares {
    double matrix = 0, attention = 0, vector = 0;
    PerAxis communication;      ///< of the micro-batches
    double launches = 0;        ///< the device waits for the host
    double bubble = 0;          ///< it waits for other stages
    double synchronisation = 0; ///< of gradients and parameters, where nothing hides it
    double optimizer = 0;

    void add(Shares const& other, double times);
};

namespace detail {

/// Seconds of one pass of a micro-batch through a stage.
struct PassTime {
    double device = 0, launches = 0;
    [[nodiscard]] double seconds() const { return std::max(device, launches); }
    void add(PassTime const& other, double times) {
        device += times * other.device;
        launches += times * other.launches;
    }
};

struct StageTime {
    PassTime forward, backward_data, backward_weight;
    Shares shares; ///< of all three

    [[nodiscard]] double seconds() const {
        return forward.seconds() + backward_data.seconds() + backward_weight.seconds();
    }
};

/// Operations of data loading and of the loss that are started for each micro-batch besides those of the layers.
inline constexpr double operations_of_micro_batch = 20;

/// What a micro-batch takes in a part of the model.
StageTime part_time(MeshPart const& part, Rates const& rates);

/// Times stages put together from parts.
class StageTimes {
  public:
    StageTimes(Account const& account, Rates const& rates) : account_(&account) {
        for (auto const& part : account.parts()) parts_.push_back(part_time(part, rates));
        overhead_ = rates.launches(operations_of_micro_batch) / 2;
    }
    [[nodiscard]] StageTime of(StageShape const& stage) const;

  private:
    Account const* account_;
    std::vector<StageTime> parts_;
    double overhead_ = 0;
};

} // namespace detail

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/stage_times.hpp>
#endif
