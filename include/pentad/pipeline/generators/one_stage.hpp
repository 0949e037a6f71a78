// Schedules of one stage a rank, as the order of each rank's computes: GPipe, TeraPipe,
// 1F1B, eager 1F1B, PipeDream, PipeDream-2BW, ZB-H1, ZB-H2.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::pipeline::order {

/// Stage s on rank s.
inline std::vector<int> straight(int ranks) {
    std::vector<int> placement(static_cast<std::size_t>(ranks));
    std::iota(placement.begin(), placement.end(), 0);
    return placement;
}

/// A schedule in which nobody does anything yet.
inline Schedule empty(std::string_view name, int ranks, int micro_batches, std::vector<std::vector<int>> placements) {
    Schedule schedule;
    schedule.name = name;
    schedule.micro_batches = micro_batches;
    schedule.placements = std::move(placements);
    schedule.instructions.resize(static_cast<std::size_t>(ranks));
    return schedule;
}

/// All forwards, then all backwards, of micro-batches in K slices. K = 1 is GPipe (Huang et al. 2019); K > 1 is
/// TeraPipe (Li et al. 2021): slice k + 1 of a sequence needs k, backward the other way round.
inline Schedule all_forwards_first(std::string_view name, int p, int m, int slices) {
    Schedule schedule = empty(name, p, m, {straight(p)});
    schedule.slices = slices;
    for (int stage = 0; stage < p; ++stage) {
        auto& list = schedule.instructions[static_cast<std::size_t>(stage)];
        for (int i = 0; i < m; ++i)
            for (int k = 0; k < slices; ++k) list.push_back({Operation::forward, stage, i, k});
        for (int i = 0; i < m; ++i)
            for (int k = slices - 1; k >= 0; --k) list.push_back({Operation::backward, stage, i, k});
    }
    return schedule;
}

/// Forwards and backwards in turn. Stage s is ahead(s) forwards ahead; where weight_delay is not null, the weight parts
/// of its backwards come weight_delay(s) micro-batches late.
template <class Ahead, class WeightDelay = std::nullptr_t>
Schedule alternate(std::string_view name, int p, int m, Ahead ahead, WeightDelay weight_delay = nullptr) {
    Schedule schedule = empty(name, p, m, {straight(p)});
    for (int stage = 0; stage < p; ++stage) {
        auto& list = schedule.instructions[static_cast<std::size_t>(stage)];
        int const first = std::min(m, ahead(stage));
        auto const add = [&](Operation operation, int i) {
            if (i >= 0 && i < m) list.push_back({operation, stage, i});
        };
        for (int i = 0; i < first; ++i) add(Operation::forward, i);
        for (int i = 0; i < m; ++i) {
            add(Operation::forward, i + first);
            if constexpr (std::is_null_pointer_v<WeightDelay>) {
                add(Operation::backward, i);
            } else {
                add(Operation::backward_data, i);
                add(Operation::backward_weight, i - weight_delay(stage));
            }
        }
        if constexpr (!std::is_null_pointer_v<WeightDelay>)
            for (int i = m - weight_delay(stage); i < m; ++i) add(Operation::backward_weight, i);
    }
    return schedule;
}

/// Narayanan et al. 2019, with a flush: a stage runs ahead just far enough to keep the later stages busy. The bubble is
/// GPipe's; stage s of p holds at most p - s micro-batches.
inline Schedule one_forward_one_backward(int p, int m) {
    return alternate("1f1b", p, m, [p](int s) { return p - 1 - s; });
}

/// Zhuang et al. 2022: twice as far ahead, so that a message has the time of a forward and a backward to arrive.
inline Schedule eager(int p, int m) {
    return alternate("eager-1f1b", p, m, [p](int s) { return 2 * (p - 1 - s); });
}

/// Qi et al. 2023: weight parts wait until every stage holds p micro-batches, and fill the end.
inline Schedule zero_bubble_1(int p, int m) {
    return alternate("zb-h1", p, m, [p](int s) { return p - 1 - s; }, [](int s) { return s; });
}

/// Qi et al. 2023: as ZB-H1 with 2p - 1 micro-batches on every stage, which leaves no bubble within a rank's own span.
inline Schedule zero_bubble_2(int p, int m) {
    return alternate("zb-h2", p, m, [p](int s) { return 2 * (p - 1 - s); }, [](int s) { return 2 * s; });
}

/// Narayanan et al. 2019: 1F1B with an update after every backward. Stage s of p sees weights that are p - 1 - s
/// updates old and keeps those of every micro-batch under way.
inline Schedule pipedream(int p, int m) {
    Schedule schedule = alternate("pipedream", p, m, [p](int s) { return p - 1 - s; });
    schedule.updates = m;
    schedule.weight_versions = std::min(p, m);
    for (int stage = 0; stage < p; ++stage) schedule.delay.push_back(p - 1 - stage);
    return schedule;
}

/// Narayanan et al. 2021: an update after each m / updates micro-batches (at least p), for which weights that are one
/// update old are kept.
inline Schedule pipedream_2bw(int p, int m, int updates) {
    Schedule schedule = alternate("pipedream-2bw", p, m, [p](int s) { return p - 1 - s; });
    schedule.updates = updates;
    schedule.weight_versions = std::min(updates, 2);
    schedule.delay.assign(static_cast<std::size_t>(p), 1);
    return schedule;
}

} // namespace pentad::pipeline::order
