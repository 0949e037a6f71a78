// The router of a mixture of experts, but for who chooses (choose_experts.hpp, select_tokens.hpp): scores of experts,
// the weights of those that were chosen, their gradient, and the sums over tokens that the losses of the router are
// made of.
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/rows.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace pentad::kernels {

// Throughout, logits, scores and their gradients are [tokens, experts]; index, weight and dweight are [tokens, slots].
// A slot of index names an expert e; -2 - e where the expert has no room for the token; -1 where nothing was chosen.
// Negative slots are behind the others.

/// Rows that are tokens: the first `tokens` of each `length`, a sequence. The others are padding.
struct TokenRows {
    i64 length = 1, tokens = 1;

    [[nodiscard]] KOKKOS_FUNCTION bool contains(i64 row) const { return row % length < tokens; }
};

/// How scores are made of logits, and weights of scores.
struct RouterForm {
    bool is_sigmoid = false;  ///< of each logit; else the softmax over a token's
    bool renormalises = true; ///< a token's weights sum to `scale`; else they are scores times `scale`
    double scale = 1;
};

/// The expert of a slot that names one, with room or without; else -1.
KOKKOS_FUNCTION inline i32 chosen_expert(i32 slot) { return slot < -1 ? -2 - slot : slot; }

/// scores = softmax(logits) or sigmoid(logits); lse = log-sum-exp(logits); total = the sum of a token's scores. Rows of
/// padding are zero in all three. scores may be logits.
template <class A, class Exec>
void router_scores(Exec const& exec, In<A, 2, Exec> logits, Out<A, 2, Exec> scores, Out<A, 1, Exec> lse,
                   Out<A, 1, Exec> total, RouterForm const& form = {}, TokenRows const& rows = {}) {
    detail::require_same_shape("router_scores", "scores", scores, "logits", logits);
    detail::require_extent("router_scores", "lse", lse.extent(0), logits.extent(0), "rows of logits");
    detail::require_extent("router_scores", "total", total.extent(0), logits.extent(0), "rows of logits");
    int const experts = static_cast<int>(logits.extent(1));
    bool const is_sigmoid = form.is_sigmoid;
    if (dry("router_scores", logits, scores, lse, total)) return;
    for_each_row(
        "pentad::router_scores", exec, logits.extent(0), experts, KOKKOS_LAMBDA(Row<Exec> const& row) {
            A const* const in = row.of(logits);
            A* const p = row.of(scores);
            if (!rows.contains(row.index())) {
                row.each(experts, [&](int e) { p[e] = 0; });
                row.once([&] {
                    lse(row.index()) = 0;
                    total(row.index()) = 0;
                });
                return;
            }
            A const largest = row.template max<A>(experts, [&](int e) { return in[e]; });
            A const sum = row.template sum<A>(experts, [&](int e) { return math::exp(in[e] - largest); });
            A of_scores = 1;
            if (is_sigmoid) {
                row.each(experts, [&](int e) { p[e] = A(1) / (A(1) + math::exp(-in[e])); });
                row.sync();
                of_scores = row.template sum<A>(experts, [&](int e) { return p[e]; });
            } else {
                A const inverse = A(1) / sum;
                row.each(experts, [&](int e) { p[e] = math::exp(in[e] - largest) * inverse; });
            }
            row.once([&] {
                lse(row.index()) = largest + Kokkos::log(sum);
                total(row.index()) = of_scores;
            });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(router_scores)

/// weight[t, k] = scale times the score of the expert that slot k names, over the sum of those of all slots where they
/// are renormalised; 0 where a slot names none. Experts without room count in the sum.
template <class A, class Exec>
void router_weights(Exec const& exec, In<A, 2, Exec> scores, In<i32, 2, Exec> index, Out<A, 2, Exec> weight,
                    RouterForm const& form = {}) {
    detail::require_same_shape("router_weights", "weight", weight, "index", index);
    detail::require_extent("router_weights", "index", index.extent(0), scores.extent(0), "rows of scores");
    int const slots = static_cast<int>(index.extent(1));
    A const scale = static_cast<A>(form.scale);
    bool const renormalises = form.renormalises;
    if (dry("router_weights", scores, index, weight)) return;
    for_each_row(
        "pentad::router_weights", exec, scores.extent(0), slots, KOKKOS_LAMBDA(Row<Exec> const& row) {
            A const* const p = row.of(scores);
            i32 const* const chosen = row.of(index);
            A* const w = row.of(weight);
            auto const score = [&](int k) {
                i32 const e = chosen_expert(chosen[k]);
                return e < 0 ? A(0) : p[e];
            };
            A const sum = renormalises ? row.template sum<A>(slots, score) : A(1);
            // Where no expert was chosen, or all scores are 0, there is nothing to divide by.
            A const factor = sum > A(0) ? scale / sum : A(0);
            row.each(slots, [&](int k) { w[k] = score(k) * factor; });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(router_weights)

/// dlogits from dweight, from the losses of balance and from the z loss. Rows of padding are zero.
/// @param logits of sigmoid scores where z_scale is not 0; else of extent 0
/// @param total of router_scores
/// @param dshare the gradient of each expert's share of a token, score / total: a row for every `rows_of_share` tokens,
/// none for no loss
/// @param z_scale the factor of the sum of lse^2
template <class A, class Exec>
void router_backward(Exec const& exec, In<A, 2, Exec> logits, In<A, 2, Exec> scores, In<A, 1, Exec> lse,
                     In<A, 1, Exec> total, In<i32, 2, Exec> index, In<A, 2, Exec> weight, In<A, 2, Exec> dweight,
                     In<A, 2, Exec> dshare, i64 rows_of_share, A z_scale, Out<A, 2, Exec> dlogits,
                     RouterForm const& form = {}, TokenRows const& rows = {}) {
    detail::require_same_shape("router_backward", "dlogits", dlogits, "scores", scores);
    detail::require_same_shape("router_backward", "weight", weight, "index", index);
    detail::require_same_shape("router_backward", "dweight", dweight, "index", index);
    detail::require_extent("router_backward", "lse", lse.extent(0), scores.extent(0), "rows of scores");
    bool const balanced = dshare.extent(0) != 0, is_sigmoid = form.is_sigmoid, renormalises = form.renormalises;
    if (balanced)
        detail::require_extent("router_backward", "dshare, dimension 1,", dshare.extent(1), scores.extent(1),
                               "experts, or no rows for none");
    bool const has_z = is_sigmoid && z_scale != A(0);
    if (has_z) detail::require_same_shape("router_backward", "logits", logits, "scores", scores);
    int const experts = static_cast<int>(scores.extent(1));
    int const slots = static_cast<int>(index.extent(1));
    A const scale = static_cast<A>(form.scale);
    if (dry("router_backward", scores, lse, total, index, weight, dweight, dshare, dlogits)) return;
    for_each_row(
        "pentad::router_backward", exec, scores.extent(0), experts, KOKKOS_LAMBDA(Row<Exec> const& row) {
            A const* const p = row.of(scores);
            A const* const w = row.of(weight);
            A const* const dw = row.of(dweight);
            A const* const dp = balanced ? row_of(dshare, row.index() / rows_of_share) : nullptr;
            i32 const* const chosen = row.of(index);
            A* const out = row.of(dlogits);
            if (!rows.contains(row.index())) {
                row.each(experts, [&](int e) { out[e] = 0; });
                return;
            }
            A const z = A(2) * z_scale * lse(row.index());
            A const centre = row.template sum<A>(slots, [&](int k) { return w[k] * dw[k]; });
            if (is_sigmoid) {
                A const inverse = total(row.index()) > A(0) ? A(1) / total(row.index()) : A(0);
                int const terms = balanced ? experts : 0;
                A const mean = row.template sum<A>(terms, [&](int e) { return p[e] * inverse * dp[e]; });
                if (balanced)
                    row.each(experts, [&](int e) { out[e] = (A(1) - p[e]) * p[e] * inverse * (dp[e] - mean); });
                else
                    row.each(experts, [&](int e) { out[e] = 0; });
                if (has_z) {
                    A const* const in = row.of(logits);
                    row.each(experts, [&](int e) { out[e] += z * math::exp(in[e] - lse(row.index())); });
                }
                row.sync();
                A const pull = renormalises ? centre / scale : A(0);
                row.each(slots, [&](int k) {
                    i32 const e = chosen_expert(chosen[k]);
                    if (e >= 0) out[e] += (A(1) - p[e]) * w[k] * (dw[k] - pull);
                });
                return;
            }
            int const terms = balanced ? experts : 0;
            A const mean = row.template sum<A>(terms, [&](int e) { return p[e] * dp[e]; });
            // Renormalised, the weights are a softmax over the logits of what was chosen; else one over all.
            A const constant = z - mean - (renormalises ? A(0) : centre);
            if (balanced)
                row.each(experts, [&](int e) { out[e] = p[e] * (dp[e] + constant); });
            else
                row.each(experts, [&](int e) { out[e] = p[e] * constant; });
            row.sync();
            A const pull = renormalises ? centre / scale : A(0);
            row.each(slots, [&](int k) {
                i32 const e = chosen_expert(chosen[k]);
                if (e >= 0) out[e] += w[k] * (dw[k] - pull);
            });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(router_backward)

/// sums[e] = sum over rows of an expert's share of a token, scores[r, e] / total[r]; of padding 0.
template <class A, class Exec>
void router_share_sums(Exec const& exec, In<A, 2, Exec> scores, In<A, 1, Exec> total, Out<A, 1, Exec> sums) {
    detail::require_extent("router_share_sums", "sums", sums.extent(0), scores.extent(1), "experts");
    detail::require_extent("router_share_sums", "total", total.extent(0), scores.extent(0), "rows of scores");
    if (dry("router_share_sums", scores, total, sums)) return;
    sum_over_rows<A>(
        "pentad::router_share_sums", exec, scores.extent(0), scores.extent(1),
        KOKKOS_LAMBDA(i64 r, int e) { return total(r) > A(0) ? scores(r, e) / total(r) : A(0); },
        KOKKOS_LAMBDA(int e, A sum) { sums(e) = sum; });
}
PENTAD_KERNEL_OF_ACCUMULATORS(router_share_sums)

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
                    i64 const e = chosen_expert(index(r, k));
                    if (e >= begin && e < end) ++counts(e);
                }
        } else { // integers add up to the same in any order
            if (i32 const e = chosen_expert(index(at / top_k, at % top_k)); e >= 0) Kokkos::atomic_inc(&counts(e));
        }
    }
};

} // namespace detail

/// counts[e] = how many slots of index name expert e, with room for the token or without.
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
PENTAD_KERNEL_OF_EXEC(router_counts)

/// Adds to load[0:experts] how many slots name each expert, and to load[experts] how many of them have no room.
template <class Exec>
void note_choices(Exec const& exec, In<i32, 2, Exec> index, Out<i64, 1, Exec> load) {
    i64 const slots = static_cast<i64>(index.extent(1)), last = static_cast<i64>(load.extent(0)) - 1;
    if (index.size() == 0 || dry("note_choices", index, load)) return;
    Kokkos::parallel_for(
        "pentad::note_choices",
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, static_cast<i64>(index.extent(0))),
        KOKKOS_LAMBDA(i64 t) {
            for (i64 k = 0; k < slots; ++k) {
                i32 const slot = index(t, k);
                if (i32 const e = chosen_expert(slot); e >= 0) Kokkos::atomic_inc(&load(e));
                if (slot < -1) Kokkos::atomic_inc(&load(last));
            }
        });
}
PENTAD_KERNEL_OF_EXEC(note_choices)

/// excess[e] += counts[e] - the mean of counts.
template <class A, class Exec>
void add_excess_load(Exec const& exec, In<i64, 1, Exec> counts, Out<A, 1, Exec> excess) {
    detail::require_extent("add_excess_load", "excess", excess.extent(0), counts.extent(0), "experts");
    i64 const experts = static_cast<i64>(counts.extent(0));
    if (dry("add_excess_load", counts, excess, excess)) return;
    for_each_element(
        "pentad::add_excess_load", exec, counts.extent(0), KOKKOS_LAMBDA(i64 e) {
            i64 sum = 0;
            for (i64 i = 0; i < experts; ++i) sum += counts(i);
            excess(e) += static_cast<A>(counts(e)) - static_cast<A>(sum) / static_cast<A>(experts);
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(add_excess_load)

} // namespace pentad::kernels
