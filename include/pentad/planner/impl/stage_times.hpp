// The functions of <pentad/planner/stage_times.hpp>.
#pragma once

#include <pentad/planner/stage_times.hpp>

#include <pentad/mesh/inline.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace pentad::planner {

PENTAD_INLINE void Shares::add(Shares const& other, double times) {
    matrix += times * other.matrix;
    attention += times * other.attention;
    vector += times * other.vector;
    communication.add(other.communication, times);
    hidden += times * other.hidden;
    launches += times * other.launches;
}

} // namespace pentad::planner

namespace pentad::planner::detail {

PENTAD_INLINE StageTime part_time(MeshPart const& part, Rates const& of_model, bool is_block) {
    auto const own =
        part.own ? std::optional<Rates>(std::in_place, of_model.hardware(), part.own->strategy) : std::nullopt;
    auto const& rates = own ? *own : of_model;
    StageTime time;
    auto const passes = part.passes();
    std::array<PassTime*, 3> const times{&time.forward, &time.backward_data, &time.backward_weight};
    for (std::size_t i = 0; i < passes.size(); ++i) {
        auto const& pass = *passes[i];
        double const matrix = (is_block ? rates.block_products(pass.product_flops, pass.product_bytes)
                                        : rates.products(pass.product_flops, pass.product_bytes)) +
                              rates.product_starts(pass.products);
        double const attention =
            rates.attention(pass.attention_flops + pass.scan_flops, pass.attention_bytes + pass.scan_bytes) +
            rates.product_starts(pass.attentions);
        double const vector = rates.passes(pass.pass_bytes) + rates.pass_starts(pass.passes);
        time.shares.matrix += matrix;
        time.shares.attention += attention;
        time.shares.vector += vector;
        double sent = 0;
        for (std::size_t axis = 0; axis < traffic_axes; ++axis) {
            auto const& traffic = part.traffic[i][axis];
            if (!traffic.is_used()) continue;
            double const seconds = rates.exchanges(axis, traffic);
            time.shares.communication[traffic_axis(axis)] += seconds;
            sent += seconds;
        }
        *times[i] = {matrix + attention + vector + sent, rates.launches(pass.operations, pass.calls), sent};
    }
    return time;
}

PENTAD_INLINE PassTimes StageTimes::passes_of_parts(StageShape const& stage) const {
    PassTimes times;
    account_->for_each_kind(
        stage, [&](MeshPart const& part, double count) { times.add(parts_[account_->index_of(part)], count); });
    return times;
}

PENTAD_INLINE PassTimes StageTimes::passes_of(StageShape const& stage) const {
    auto times = passes_of_parts(stage);
    for (auto* const pass : {&times.forward, &times.backward_data}) {
        pass->device += beside_;
        pass->launches += overhead_ + beside_;
    }
    return times;
}

PENTAD_INLINE StageTime StageTimes::of(StageShape const& stage) const {
    StageTime time{passes_of(stage), {}};
    account_->for_each_kind(stage, [&](MeshPart const& part, double count) {
        time.shares.add(parts_[account_->index_of(part)].shares, count);
    });
    time.shares.launches = time.seconds() - passes_of_parts(stage).device();
    return time;
}

} // namespace pentad::planner::detail
