// The functions of <pentad/planner/held_moments.hpp>.
#pragma once

#include <pentad/planner/held_moments.hpp>

#include <pentad/mesh/inline.hpp>

#include <utility>

namespace pentad::planner {

PENTAD_INLINE bool HeldMoment::covers(HeldMoment const& other) const {
    if (stage != other.stage || (passes & other.passes) != other.passes || inputs < other.inputs ||
        (other.beside != none && other.beside != beside))
        return false;
    for (std::size_t i = 0; i < saved.size(); ++i)
        if (saved[i] < other.saved[i] || left[i] < other.left[i]) return false;
    return true;
}

PENTAD_INLINE auto HeldMoment::between_passes() const -> HeldMoment {
    auto moment = *this;
    ((passes & backward_weight_pass) != 0 ? moment.left : moment.saved)[stage] += 1;
    moment.passes = 0;
    moment.stage = 0;
    moment.beside = none;
    return moment;
}

PENTAD_INLINE void add_moment(std::vector<HeldMoment>& moments, HeldMoment const& added) {
    auto const covers_it = [&](HeldMoment const& other) { return other.covers(added); };
    if (std::any_of(moments.begin(), moments.end(), covers_it)) return;
    auto moment = added;
    constexpr std::uint8_t whole = forward_pass | backward_pass;
    if ((moment.passes & whole) != 0)
        for (auto const& other : moments)
            if ((other.passes & whole) != 0 && other.stage == moment.stage && other.saved == moment.saved &&
                other.left == moment.left && other.inputs == moment.inputs && other.beside == moment.beside)
                moment.passes |= other.passes;
    std::erase_if(moments, [&](auto const& other) { return moment.covers(other); });
    moments.push_back(std::move(moment));
}

PENTAD_INLINE std::vector<std::vector<HeldMoment>> held_moments(pipeline::Schedule const& schedule) {
    using pipeline::Operation;
    std::vector<std::vector<HeldMoment>> of_ranks;
    auto const stages = static_cast<std::size_t>(schedule.stages());
    for (auto const& instructions : schedule.instructions) {
        auto& moments = of_ranks.emplace_back();
        HeldMoment now{.saved = std::vector<double>(stages), .left = std::vector<double>(stages)};
        std::size_t beside = HeldMoment::none;
        for (auto const& x : instructions) {
            if (!pipeline::is_compute(x.operation)) continue;
            now.stage = static_cast<std::size_t>(x.stage);
            now.beside = std::exchange(beside, x.paired ? now.stage : HeldMoment::none);
            auto &saved = now.saved[now.stage], &left = now.left[now.stage];
            if (x.operation == Operation::backward || x.operation == Operation::backward_data) saved -= 1;
            if (x.operation == Operation::backward_weight) left -= 1;
            if (x.operation == Operation::recompute) now.inputs -= 1;
            if (x.operation == Operation::forward && schedule.recomputes) now.inputs += 1;
            now.passes = x.operation == Operation::backward          ? backward_pass
                         : x.operation == Operation::backward_data   ? backward_data_pass
                         : x.operation == Operation::backward_weight ? backward_weight_pass
                                                                     : forward_pass;
            add_moment(moments, now);
            if (x.operation == Operation::recompute || (x.operation == Operation::forward && !schedule.recomputes))
                saved += 1;
            if (x.operation == Operation::backward_data) left += 1;
        }
    }
    return of_ranks;
}

PENTAD_INLINE PartInMoment part_in_moment(PartMemory const& part, std::size_t stage, HeldMoment const& moment) {
    double const others = moment.saved[stage] * part.saved + moment.left[stage] * part.left;
    if (moment.passes == 0 || stage != moment.stage) return {others, others, others};
    double peak = 0;
    if ((moment.passes & forward_pass) != 0) peak = part.forward;
    if ((moment.passes & (backward_pass | backward_data_pass)) != 0) peak = std::max(peak, part.backward_data);
    if ((moment.passes & (backward_pass | backward_weight_pass)) != 0) peak = std::max(peak, part.backward_weight);
    return {others + peak, others + ((moment.passes & backward_weight_pass) != 0 ? part.left : part.saved),
            others + ((moment.passes & backward_data_pass) != 0 ? part.left : 0)};
}

PENTAD_INLINE double bytes_beside(HeldMoment const& moment, std::span<HeldPart const> parts, bool whole) {
    double most = 0;
    for (auto const& part : parts)
        if (part.stage == moment.beside) most = std::max(most, part.memory->forward - (whole ? 0 : part.memory->saved));
    return most;
}

PENTAD_INLINE double most_held(std::span<HeldMoment const> moments, std::span<HeldPart const> parts, double input) {
    double most = 0;
    for (auto const& moment : moments) {
        HeldBytes bytes;
        for (std::size_t i = parts.size(); i-- > 0;)
            bytes.add(part_in_moment(*parts[i].memory, parts[i].stage, moment));
        most = std::max(most, bytes.most + moment.inputs * input + bytes_beside(moment, parts));
    }
    return most;
}

} // namespace pentad::planner
