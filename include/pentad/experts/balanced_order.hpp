// An order of experts in which the ranks that hold them have more even loads.
#pragma once

#include <pentad/layout/element.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace pentad::experts {

/// The loads of ranks to which experts are dealt in this order, an equal number to each.
inline std::vector<double> rank_loads(std::span<i32 const> order, std::span<double const> loads, std::size_t ranks) {
    std::vector<double> sums(ranks);
    for (std::size_t place = 0; place < order.size(); ++place)
        sums[place * ranks / order.size()] += loads[static_cast<std::size_t>(order[place])];
    return sums;
}

/// Greedy: swaps an expert of the most loaded rank with one of another rank, each time the pair that makes the larger
/// of the two new loads smallest (the first of equals). Stops when no swap lowers the largest load by more than 1 % of
/// the mean, so that few experts move where loads are even. `ranks` and `groups` divide the number of experts.
/// @param order the experts by their places now
/// @param loads of the experts, by their numbers
/// @param groups equal runs of places, each of which keeps its experts: of routers that limit a token's groups, so that
/// a group stays on its nodes (DeepSeek-V3, section 2.1.2)
inline std::vector<i32> balanced_order(std::span<i32 const> order, std::span<double const> loads, std::size_t ranks,
                                       std::size_t groups = 1) {
    std::vector<i32> balanced(order.begin(), order.end());
    std::size_t const each = order.size() / ranks, group = order.size() / groups;
    auto sums = rank_loads(balanced, loads, ranks);
    double const least_gain = 0.01 * std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(ranks);
    auto const load_at = [&](std::size_t place) { return loads[static_cast<std::size_t>(balanced[place])]; };
    for (;;) {
        auto const heaviest = static_cast<std::size_t>(std::max_element(sums.begin(), sums.end()) - sums.begin());
        double best = sums[heaviest] - least_gain;
        std::pair<std::size_t, std::size_t> pair{0, 0};
        for (std::size_t here = heaviest * each; here < (heaviest + 1) * each; ++here)
            for (std::size_t there = here / group * group; there < (here / group + 1) * group; ++there) {
                double const moved = load_at(here) - load_at(there);
                double const heavier = std::max(sums[heaviest] - moved, sums[there / each] + moved);
                if (there / each == heaviest || heavier >= best) continue;
                best = heavier;
                pair = {here, there};
            }
        if (pair.first == pair.second) return balanced;
        double const moved = load_at(pair.first) - load_at(pair.second);
        sums[heaviest] -= moved;
        sums[pair.second / each] += moved;
        std::swap(balanced[pair.first], balanced[pair.second]);
    }
}

} // namespace pentad::experts
