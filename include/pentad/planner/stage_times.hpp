// How long a micro-batch takes in a stage of the pipeline.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/detail/rates.hpp>

#include <algorithm>
#include <vector>

namespace pentad::planner {

/// Where the time of a step goes, in seconds: work, on average over the ranks of the pipeline, and waiting.
struct Shares {
    double matrix = 0, attention = 0, vector = 0;
    PerAxis communication;      ///< of the micro-batches, where no pair hides it
    double hidden = 0;          ///< the rest of it, which takes no time
    double launches = 0;        ///< the device waits for the host
    double imbalance = 0;       ///< stages wait for the slowest one, which takes longer than they do on average
    double bubble = 0;          ///< all stages wait for each other, as the schedule begins and ends
    double synchronisation = 0; ///< of gradients and parameters, where nothing hides it, on the rank that ends last
    double optimizer = 0;

    void add(Shares const& other, double times);
};

namespace detail {

/// Seconds of one pass of a micro-batch through a stage.
struct PassTime {
    double device = 0, launches = 0;
    double exchanges = 0; ///< of the device's seconds, what waits for other ranks
    [[nodiscard]] double seconds() const { return std::max(device, launches); }
    void add(PassTime const& other, double times) {
        device += times * other.device;
        launches += times * other.launches;
        exchanges += times * other.exchanges;
    }
};

/// Seconds of the passes of a micro-batch through a stage.
struct PassTimes {
    PassTime forward, backward_data, backward_weight;

    [[nodiscard]] double seconds() const {
        return forward.seconds() + backward_data.seconds() + backward_weight.seconds();
    }
    [[nodiscard]] double device() const { return forward.device + backward_data.device + backward_weight.device; }
    [[nodiscard]] double exchanges() const {
        return forward.exchanges + backward_data.exchanges + backward_weight.exchanges;
    }
    /// At the least, in a schedule of pairs.
    [[nodiscard]] double paired_seconds() const { return std::max(seconds() - exchanges(), exchanges()); }
    void add(PassTimes const& other, double times) {
        forward.add(other.forward, times);
        backward_data.add(other.backward_data, times);
        backward_weight.add(other.backward_weight, times);
    }
};
struct StageTime : PassTimes {
    Shares shares; ///< of all three
};

/// Operations of data loading and of the loss that are started for each micro-batch besides those of the layers, and
/// the calls that these are.
inline constexpr double operations_of_micro_batch = 20, calls_of_micro_batch = 6;

/// What a micro-batch takes in a part of the model.
/// @param of_model those on the mesh of the model @param is_block it is neither the embedding nor the head
StageTime part_time(MeshPart const& part, Rates const& of_model, bool is_block);

/// Times stages put together from parts.
class StageTimes {
  public:
    StageTimes(Account const& account, Rates const& rates) : account_(&account) {
        auto const& parts = account.parts();
        for (std::size_t i = 0; i < parts.size(); ++i)
            parts_.push_back(part_time(parts[i], rates, i > 0 && i + 1 < parts.size()));
        overhead_ = rates.launches(operations_of_micro_batch, calls_of_micro_batch) / 2;
        beside_ = rates.hardware().micro_batch_s / 2;
    }
    [[nodiscard]] StageTime of(StageShape const& stage) const;
    [[nodiscard]] PassTimes passes_of(StageShape const& stage) const;

  private:
    /// Without what a micro-batch takes besides its parts.
    [[nodiscard]] PassTimes passes_of_parts(StageShape const& stage) const;
    Account const* account_;
    std::vector<StageTime> parts_;
    double overhead_ = 0, beside_ = 0; ///< of each micro-batch: seconds of launches, and of the device
};

} // namespace detail

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/stage_times.hpp>
#endif
