// The softmax router of a mixture of experts: probabilities, the top k, with weights that are renormalised (as
// Mixtral) or not, their gradient, and the sums over tokens that the balance loss is made of (the z loss needs
// sum_of_squares of lse, in elementwise.hpp).
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/rows.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pentad::kernels {

/// Rows that are tokens: the first `tokens` of each `length`, a sequence. The others are padding.
struct TokenRows {
    i64 length = 1, tokens = 1;

    [[nodiscard]] KOKKOS_FUNCTION bool contains(i64 row) const { return row % length < tokens; }
};

/// probabilities = softmax(logits), lse = log-sum-exp(logits); index[r, :] = the top k experts in descending order of
/// probability, the lower index first among equals; weight = their probabilities, `renormalised` to sum to 1. Padding
/// chooses no expert, index = -1, and all else of it is zero.
template <class A, class Exec>
void router_forward(Exec const& exec, In<A, 2, Exec> logits, Out<A, 2, Exec> probabilities, Out<A, 1, Exec> lse,
                    Out<i32, 2, Exec> index, Out<A, 2, Exec> weight, bool renormalised = true,
                    TokenRows const& rows = {}) {
    detail::require_same_shape("router_forward", "probabilities", probabilities, "logits", logits);
    detail::require_same_shape("router_forward", "weight", weight, "index", index);
    detail::require_extent("router_forward", "lse", lse.extent(0), logits.extent(0), "rows of logits");
    detail::require_extent("router_forward", "index, dimension 0,", index.extent(0), logits.extent(0),
                           "rows of logits");
    int const experts = static_cast<int>(logits.extent(1));
    int const top_k = static_cast<int>(index.extent(1));
    if (top_k > experts)
        throw std::invalid_argument("router_forward: top_k is " + std::to_string(top_k) + ", it must be at most " +
                                    std::to_string(experts) + ", the number of experts");
    if (dry("router_forward", logits, probabilities, lse, index, weight)) return;
    for_each_row(
        "pentad::router_forward", exec, logits.extent(0), experts, KOKKOS_LAMBDA(Row<Exec> const& row) {
            A const* const in = row.of(logits);
            A* const p = row.of(probabilities);
            i32* const chosen = row.of(index);
            A* const w = row.of(weight);
            if (!rows.contains(row.index())) {
                row.each(experts, [&](int e) { p[e] = 0; });
                row.each(top_k, [&](int k) {
                    chosen[k] = -1;
                    w[k] = 0;
                });
                row.once([&] { lse(row.index()) = 0; });
                return;
            }
            A const largest = row.template max<A>(experts, [&](int e) { return in[e]; });
            A const total = row.template sum<A>(experts, [&](int e) { return math::exp(in[e] - largest); });
            A const inverse = A(1) / total;
            row.each(experts, [&](int e) { p[e] = math::exp(in[e] - largest) * inverse; });
            row.sync();
            // The choices are strictly ordered by (probability falling, index rising): the next one is the first of
            // those after the last one. (No && and ||: they are jumps, and loops with jumps are not vectorised.)
            A last = Kokkos::Experimental::infinity_v<A>;
            int last_index = -1;
            A sum = 0;
            for (int k = 0; k < top_k; ++k) {
                auto const left = [&](int e) { return (p[e] < last) | ((p[e] == last) & (e > last_index)); };
                A const best = row.template max<A>(experts, [&](int e) { return left(e) ? p[e] : A(-1); });
                int const next = row.first(experts, [&](int e) { return left(e) & (p[e] == best); });
                last_index = next < experts ? next : k; // with NaN nothing is left: stay in range
                last = p[last_index];
                sum += last;
                row.once([&] { chosen[k] = last_index; });
            }
            row.sync();
            A const whole = renormalised ? sum : A(1);
            row.each(top_k, [&](int k) { w[k] = p[chosen[k]] / whole; });
            row.once([&] { lse(row.index()) = largest + Kokkos::log(total); });
        });
}

/// dlogits from dweight (the gradient of the weights, `renormalised` or not), dprobability (of the balance loss: the
/// same for every row; extent 0 for none) and z_scale (of the z loss: the factor of sum of lse^2). Of padding it is
/// zero.
template <class A, class Exec>
void router_backward(Exec const& exec, In<A, 2, Exec> probabilities, In<A, 1, Exec> lse, In<i32, 2, Exec> index,
                     In<A, 2, Exec> weight, In<A, 2, Exec> dweight, In<A, 1, Exec> dprobability, A z_scale,
                     Out<A, 2, Exec> dlogits, bool renormalised = true) {
    detail::require_same_shape("router_backward", "dlogits", dlogits, "probabilities", probabilities);
    detail::require_same_shape("router_backward", "weight", weight, "index", index);
    detail::require_same_shape("router_backward", "dweight", dweight, "index", index);
    detail::require_extent("router_backward", "lse", lse.extent(0), probabilities.extent(0), "rows of probabilities");
    detail::require_extent("router_backward", "index, dimension 0,", index.extent(0), probabilities.extent(0),
                           "rows of probabilities");
    bool const balanced = dprobability.extent(0) != 0;
    if (balanced)
        detail::require_extent("router_backward", "dprobability", dprobability.extent(0), probabilities.extent(1),
                               "experts, or 0 for none");
    int const experts = static_cast<int>(probabilities.extent(1));
    int const top_k = static_cast<int>(index.extent(1));
    if (dry("router_backward", probabilities, lse, index, weight, dweight, dprobability, dlogits)) return;
    for_each_row(
        "pentad::router_backward", exec, probabilities.extent(0), experts, KOKKOS_LAMBDA(Row<Exec> const& row) {
            A const* const p = row.of(probabilities);
            A const* const w = row.of(weight);
            A const* const dw = row.of(dweight);
            A const* const dp = dprobability.data();
            i32 const* const chosen = row.of(index);
            A* const out = row.of(dlogits);
            int const terms = balanced ? experts : 0;
            A const mean = row.template sum<A>(terms, [&](int e) { return p[e] * dp[e]; });
            // w is p of the choices: a softmax over the chosen logits alone where it is renormalised, else over all.
            A const centre = row.template sum<A>(top_k, [&](int k) { return w[k] * dw[k]; });
            A const constant = A(2) * z_scale * lse(row.index()) - mean - (renormalised ? A(0) : centre);
            if (balanced)
                row.each(experts, [&](int e) { out[e] = p[e] * (dp[e] + constant); });
            else
                row.each(experts, [&](int e) { out[e] = p[e] * constant; });
            row.sync();
            A const pull = renormalised ? centre : A(0);
            row.each(top_k, [&](int k) {
                if (chosen[k] >= 0) out[chosen[k]] += w[k] * (dw[k] - pull);
            });
        });
}

/// sums[e] = sum over rows of probabilities[r, e].
template <class A, class Exec>
void router_probability_sums(Exec const& exec, In<A, 2, Exec> probabilities, Out<A, 1, Exec> sums) {
    detail::require_extent("router_probability_sums", "sums", sums.extent(0), probabilities.extent(1), "experts");
    if (dry("router_probability_sums", probabilities, sums)) return;
    sum_over_rows<A>(
        "pentad::router_probability_sums", exec, probabilities.extent(0), probabilities.extent(1),
        KOKKOS_LAMBDA(i64 r, int e) { return probabilities(r, e); },
        KOKKOS_LAMBDA(int e, A total) { sums(e) = total; });
}

namespace detail {

template <class Exec>
struct CountChoices {
    In<i32, 2, Exec> index;
    Out<i64, 1, Exec> counts;
    i64 shares; // host: a thread reads all slots and counts for its share of the experts
    KOKKOS_FUNCTION void operator()(i64 at) const {
        int const top_k = static_cast<int>(index.extent(1));
        if constexpr (runs_on_host<Exec>) {
            i64 const experts = static_cast<i64>(counts.extent(0));
            i64 const begin = experts * at / shares, end = experts * (at + 1) / shares;
            for (i64 e = begin; e < end; ++e) counts(e) = 0;
            for (i64 r = 0; r < static_cast<i64>(index.extent(0)); ++r)
                for (int k = 0; k < top_k; ++k) {
                    i64 const e = index(r, k);
                    if (e >= begin && e < end) ++counts(e);
                }
        } else { // integers add up to the same in any order
            if (i32 const e = index(at / top_k, at % top_k); e >= 0) Kokkos::atomic_inc(&counts(e));
        }
    }
};

} // namespace detail

/// counts[e] = how many slots of index chose expert e; one that is negative chose none.
template <class Exec>
void router_counts(Exec const& exec, In<i32, 2, Exec> index, Out<i64, 1, Exec> counts) {
    if (counts.extent(0) == 0 || dry("router_counts", index, counts)) return;
    i64 const slots = static_cast<i64>(index.extent(0) * index.extent(1));
    i64 const shares = std::min(static_cast<i64>(exec.concurrency()), static_cast<i64>(counts.extent(0)));
    if constexpr (!runs_on_host<Exec>) Kokkos::deep_copy(exec, counts, i64(0));
    Kokkos::parallel_for(
        "pentad::router_counts",
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, runs_on_host<Exec> ? shares : slots),
        detail::CountChoices<Exec>{index, counts, shares});
}

} // namespace pentad::kernels
