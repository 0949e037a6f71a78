// V-Half and V-Min, as the order of each rank's computes: a V-shaped pipeline in which
// one pattern, repeated every six units for the next micro-batch, decides how long activations live.
#pragma once

#include <pentad/pipeline/generators/one_stage.hpp>
#include <pentad/pipeline/generators/two_ended.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::pipeline::order {

namespace detail {

/// `pattern(rank)` is when the rank computes for micro-batch 0: forward on the way out and back, backward on the way
/// out and back. No two of these times are equal mod 6. Weight parts take the units that are left.
template <class Pattern>
Schedule repeat(std::string_view name, int p, int m, Pattern pattern) {
    Schedule schedule = empty(name, p, m, {back_and_forth(p, 2)});
    for (int rank = 0; rank < p; ++rank) {
        std::array<int, 4> const times = pattern(rank);
        std::vector<std::pair<int, Instruction>> timed;
        for (int i = 0; i < m; ++i)
            for (std::size_t part = 0; part < 4; ++part) {
                int const stage = part == 0 || part == 3 ? rank : 2 * p - 1 - rank;
                timed.push_back(
                    {times[part] + 6 * i, {part < 2 ? Operation::forward : Operation::backward_data, stage, i}});
            }
        std::sort(timed.begin(), timed.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
        auto& list = schedule.instructions[static_cast<std::size_t>(rank)];
        std::vector<Instruction> owed;
        std::size_t paid = 0;
        int now = 0;
        for (auto const& [time, instruction] : timed) {
            for (; now < time && paid < owed.size(); ++now) list.push_back(owed[paid++]);
            now = time + 1;
            list.push_back(instruction);
            if (instruction.operation == Operation::backward_data)
                owed.push_back({Operation::backward_weight, instruction.stage, instruction.micro_batch});
        }
        list.insert(list.end(), owed.begin() + static_cast<std::ptrdiff_t>(paid), owed.end());
    }
    return schedule;
}

} // namespace detail

/// Qi et al. 2024: about half of 1F1B's activations, about half of its bubble.
inline Schedule v_half(int p, int m) {
    int const wait = p % 2 == 0 ? 3 : 0; // keeps the four times apart
    return detail::repeat("v-half", p, m, [=](int r) {
        return std::array{2 * r, 3 * p - r - 2, 3 * p + wait + 2 * r - 1, 6 * p + wait - r - 2};
    });
}

/// Qi et al. 2024: about a third of 1F1B's activations, about two thirds of its bubble.
inline Schedule v_min(int p, int m) {
    int const wait = p % 3 == 0 ? 2 : 0;
    return detail::repeat("v-min", p, m,
                          [=](int r) { return std::array{r, 2 * p - r - 1, 2 * p + wait + r, 4 * p + wait - r - 1}; });
}

} // namespace pentad::pipeline::order
