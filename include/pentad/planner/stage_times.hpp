// How long a micro-batch takes in a stage of the pipeline.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/detail/rates.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
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

    void add(Shares const& other, double times) {
        matrix += times * other.matrix;
        attention += times * other.attention;
        vector += times * other.vector;
        communication.add(other.communication, times);
        launches += times * other.launches;
    }
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
inline StageTime part_time(MeshPart const& part, Rates const& rates) {
    StageTime time;
    auto const passes = part.passes();
    std::array<PassTime*, 3> const times{&time.forward, &time.backward_data, &time.backward_weight};
    for (std::size_t i = 0; i < passes.size(); ++i) {
        auto const& pass = *passes[i];
        double const matrix = rates.products(pass.product_flops, pass.product_bytes);
        double const attention =
            rates.attention(pass.attention_flops + pass.scan_flops, pass.attention_bytes + pass.scan_bytes);
        double const vector = rates.passes(pass.pass_bytes);
        time.shares.matrix += matrix;
        time.shares.attention += attention;
        time.shares.vector += vector;
        double sent = 0;
        for (std::size_t axis = 0; axis < traffic_axes; ++axis) {
            auto const& traffic = part.traffic[i][axis];
            if (traffic.waits == 0) continue;
            double const seconds = rates.exchanges(axis, traffic);
            time.shares.communication[traffic_axis(axis)] += seconds;
            sent += seconds;
        }
        *times[i] = {matrix + attention + vector + sent, rates.launches(pass.operations)};
    }
    return time;
}

/// Times stages put together from parts.
class StageTimes {
  public:
    StageTimes(Account const& account, Rates const& rates) : account_(&account) {
        for (auto const& part : account.parts()) parts_.push_back(part_time(part, rates));
        overhead_ = rates.launches(operations_of_micro_batch) / 2;
    }
    [[nodiscard]] StageTime of(StageShape const& stage) const {
        StageTime time;
        account_->for_each_kind(stage, [&](MeshPart const& part, double count) {
            auto const& one = parts_[account_->index_of(part)];
            time.forward.add(one.forward, count);
            time.backward_data.add(one.backward_data, count);
            time.backward_weight.add(one.backward_weight, count);
            time.shares.add(one.shares, count);
        });
        time.forward.launches += overhead_;
        time.backward_data.launches += overhead_;
        time.shares.launches =
            time.seconds() - time.forward.device - time.backward_data.device - time.backward_weight.device;
        return time;
    }

  private:
    Account const* account_;
    std::vector<StageTime> parts_;
    double overhead_ = 0;
};

} // namespace detail

} // namespace pentad::planner
