// Tokens choose experts: the best of each token, within the best groups of experts.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/router.hpp>
#include <pentad/kernels/rows.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace pentad::kernels {

/// Groups of consecutive experts, as many in each. A token chooses within the best of them.
struct ExpertGroups {
    static constexpr int most = 64;
    int count = 1, chosen = 1;
    int counted = 1; ///< a group is as good as its best expert, or its best two together: 1 or 2
};

namespace detail {

/// The groups that a row may choose in, a bit for each. `value(e)` is how good an expert is.
template <class A, class Exec, class Value>
KOKKOS_FUNCTION std::uint64_t best_groups(Row<Exec> const& row, int experts, ExpertGroups const& groups,
                                          Value const& value) {
    if (groups.count == groups.chosen) return ~std::uint64_t{0};
    A const nothing = -Kokkos::Experimental::infinity_v<A>;
    int const size = experts / groups.count;
    A good[ExpertGroups::most];
    for (int g = 0; g < groups.count; ++g) {
        int const first = g * size;
        A const best = row.template max<A>(size, [&](int i) { return value(first + i); });
        good[g] = best;
        if (groups.counted < 2 || size < 2) continue;
        int const at = row.first(size, [&](int i) { return value(first + i) == best; });
        good[g] += row.template max<A>(size, [&](int i) { return i == at ? nothing : value(first + i); });
    }
    std::uint64_t mask = 0;
    for (int n = 0; n < groups.chosen; ++n) {
        int best = -1;
        for (int g = 0; g < groups.count; ++g)
            if ((mask >> g & 1u) == 0 && (best < 0 || good[g] > good[best])) best = g;
        mask |= std::uint64_t{1} << best;
    }
    return mask;
}

} // namespace detail

/// index[t, :] = the experts with the largest values[t, e] + bias[e], in descending order of that, the lower expert
/// first among equals; of padding -1. `bias` has extent 0 where there is none.
template <class A, class Exec>
void choose_experts(Exec const& exec, In<A, 2, Exec> values, In<A, 1, Exec> bias, Out<i32, 2, Exec> index,
                    ExpertGroups const& groups = {}, TokenRows const& rows = {}) {
    detail::require_extent("choose_experts", "index, dimension 0,", index.extent(0), values.extent(0),
                           "rows of values");
    int const experts = static_cast<int>(values.extent(1));
    int const top_k = static_cast<int>(index.extent(1));
    bool const biased = bias.extent(0) != 0;
    if (biased) detail::require_extent("choose_experts", "bias", bias.extent(0), values.extent(1), "experts, or 0");
    if (groups.count < 1 || groups.count > ExpertGroups::most || experts % groups.count != 0)
        throw std::invalid_argument("choose_experts: " + std::to_string(experts) + " experts cannot be divided into " +
                                    std::to_string(groups.count) + " equal groups, of which there may be 64");
    int const allowed = experts / groups.count * groups.chosen;
    if (top_k > allowed)
        throw std::invalid_argument("choose_experts: top_k is " + std::to_string(top_k) + ", it must be at most " +
                                    std::to_string(allowed) + ", the number of experts that a token chooses from");
    if (dry("choose_experts", values, bias, index)) return;
    for_each_row(
        "pentad::choose_experts", exec, values.extent(0), experts, KOKKOS_LAMBDA(Row<Exec> const& row) {
            i32* const chosen = row.of(index);
            if (!rows.contains(row.index())) {
                row.each(top_k, [&](int k) { chosen[k] = -1; });
                return;
            }
            A const* const of_row = row.of(values);
            A const* const b = bias.data();
            auto const choose = [&](auto const& value) {
                std::uint64_t const mask = detail::best_groups<A, Exec>(row, experts, groups, value);
                bool const is_whole = groups.count == groups.chosen;
                int const size = experts / groups.count;
                A const nothing = -Kokkos::Experimental::infinity_v<A>;
                // The choices are strictly ordered by (value falling, index rising): the next one is the first of those
                // after the last one. (No && and ||: they are jumps, and loops with jumps are not vectorised.)
                A last = Kokkos::Experimental::infinity_v<A>;
                int last_index = -1;
                auto const take = [&](int k, auto const& left) {
                    A const best = row.template max<A>(experts, [&](int e) { return left(e) ? value(e) : nothing; });
                    int const next = row.first(experts, [&](int e) { return left(e) & (value(e) == best); });
                    last_index = next < experts ? next : k; // with NaN nothing is left: stay in range
                    last = value(last_index);
                    row.once([&] { chosen[k] = last_index; });
                };
                auto const after = [&](int e) { return (value(e) < last) | ((value(e) == last) & (e > last_index)); };
                for (int k = 0; k < top_k; ++k) {
                    if (is_whole)
                        take(k, after);
                    else
                        take(k, [&](int e) { return after(e) & ((mask >> (e / size) & 1u) != 0); });
                }
            };
            if (biased)
                choose([&](int e) { return of_row[e] + b[e]; });
            else
                choose([&](int e) { return of_row[e]; });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(choose_experts)

} // namespace pentad::kernels
