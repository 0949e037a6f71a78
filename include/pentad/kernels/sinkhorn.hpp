// Sinkhorn's iteration: factors of experts with which the scores of all tokens, those of each token scaled to sum to 1,
// sum to the same for every expert (Clark et al. 2022, "Unified Scaling Laws for Routed Language Models", section B.1).
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// sums[e] = sum over tokens t of scores[t, e] / (sum over experts i of factor[i] scores[t, i]). Scores of padding are
/// zero. `scratch` [tokens] is written over.
template <class A, class Exec>
void sinkhorn_sums(Exec const& exec, In<A, 2, Exec> scores, In<A, 1, Exec> factor, Out<A, 1, Exec> scratch,
                   Out<f64, 1, Exec> sums) {
    detail::require_extent("sinkhorn_sums", "factor", factor.extent(0), scores.extent(1), "experts");
    detail::require_extent("sinkhorn_sums", "scratch", scratch.extent(0), scores.extent(0), "rows of scores");
    detail::require_extent("sinkhorn_sums", "sums", sums.extent(0), scores.extent(1), "experts");
    int const experts = static_cast<int>(scores.extent(1));
    if (dry("sinkhorn_sums", scores, factor, scratch, sums)) return;
    for_each_row(
        "pentad::sinkhorn_rows", exec, scores.extent(0), experts, KOKKOS_LAMBDA(Row<Exec> const& row) {
            A const* const p = row.of(scores);
            A const sum = row.template sum<A>(experts, [&](int e) { return factor(e) * p[e]; });
            row.once([&] { scratch(row.index()) = sum > A(0) ? A(1) / sum : A(0); });
        });
    sum_over_rows<A>(
        "pentad::sinkhorn_columns", exec, scores.extent(0), scores.extent(1),
        KOKKOS_LAMBDA(i64 r, int e) { return scratch(r) * scores(r, e); },
        KOKKOS_LAMBDA(int e, A sum) { sums(e) = static_cast<f64>(sum); });
}
PENTAD_KERNEL_OF_ACCUMULATORS(sinkhorn_sums)

/// factor[e] = target / sums[e]: with these the scores of expert e sum to `target`.
template <class A, class Exec>
void sinkhorn_factors(Exec const& exec, In<f64, 1, Exec> sums, double target, Out<A, 1, Exec> factor) {
    detail::require_extent("sinkhorn_factors", "factor", factor.extent(0), sums.extent(0), "extent of sums");
    if (dry("sinkhorn_factors", sums, factor)) return;
    for_each_element(
        "pentad::sinkhorn_factors", exec, factor.extent(0),
        KOKKOS_LAMBDA(i64 e) { factor(e) = static_cast<A>(sums(e) > 0 ? target / sums(e) : 1.0); });
}
PENTAD_KERNEL_OF_ACCUMULATORS(sinkhorn_factors)

/// balanced[t, e] = factor[e] scores[t, e].
template <class A, class Exec>
void balanced_scores(Exec const& exec, In<A, 2, Exec> scores, In<A, 1, Exec> factor, Out<A, 2, Exec> balanced) {
    detail::require_same_shape("balanced_scores", "balanced", balanced, "scores", scores);
    int const experts = static_cast<int>(scores.extent(1));
    if (dry("balanced_scores", scores, factor, balanced)) return;
    for_each_row(
        "pentad::balanced_scores", exec, scores.extent(0), experts, KOKKOS_LAMBDA(Row<Exec> const& row) {
            A const* const p = row.of(scores);
            A* const out = row.of(balanced);
            row.each(experts, [&](int e) { out[e] = factor(e) * p[e]; });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(balanced_scores)

} // namespace pentad::kernels
