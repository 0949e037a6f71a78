// What the product of a query and a key becomes before the softmax, and its derivative: for one pair, on a device. The
// host has the same for vectors (attention_host_scores.hpp).
#pragma once

#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

namespace pentad::kernels {

/// The scores of attention: products of queries and keys, scaled, then capped, then less by what ALiBi takes.
struct AttentionScores {
    double scale = 1;
    /// A score s becomes soft_cap * tanh(s / soft_cap) (Gemma Team 2024, "Gemma 2", section 2). 0: it stays.
    double soft_cap = 0;
    /// Heads of the whole layer, where a score loses the distance of its query and key times alibi_slope() of its head.
    /// 0: it stays.
    i64 alibi_heads = 0;
    i64 first_head = 0; ///< the number that the first of these queries' heads has in the layer
};

/// The slope of a head in ALiBi (Press, Smith and Lewis 2022, "Train short, test long", section 3): of n heads, a power
/// of two, 2^(-8 (head + 1) / n). Other numbers of heads follow the authors' code: the first m heads, where m is the
/// power of two below, have the slopes of m heads, and the others every second slope of 2 m heads.
KOKKOS_INLINE_FUNCTION double alibi_slope(i64 head, i64 heads) {
    i64 power = 1;
    while (2 * power <= heads) power *= 2;
    double const number = head < power ? static_cast<double>(head + 1) : static_cast<double>(head - power) + 0.5;
    return Kokkos::exp2(-8 * number / static_cast<double>(power));
}

namespace detail {

/// A score, and its derivative with respect to the scaled product.
template <class Acc>
struct ScoreAt {
    Acc value, slope;
};

/// Scores that are the scaled products.
template <class Acc>
struct PlainScores {
    PlainScores() = default;
    explicit PlainScores(AttentionScores const&) {}

    KOKKOS_FUNCTION PlainScores of_head(i64) const { return {}; }
    KOKKOS_FUNCTION ScoreAt<Acc> at(Acc product, i64) const { return {product, Acc(1)}; }
};

/// Scores that are capped, or less by what ALiBi takes.
template <class Acc>
struct ChangedScores {
    Acc cap = Acc(0), alibi = Acc(0); ///< alibi: the slope of a head; 0: none
    i64 first_head = 0, heads = 0;

    ChangedScores() = default;
    explicit ChangedScores(AttentionScores const& scores)
        : cap(static_cast<Acc>(scores.soft_cap)), first_head(scores.first_head), heads(scores.alibi_heads) {}

    /// @param head of these queries
    KOKKOS_FUNCTION ChangedScores of_head(i64 head) const {
        ChangedScores scores = *this;
        if (heads > 0) scores.alibi = static_cast<Acc>(alibi_slope(first_head + head, heads));
        return scores;
    }
    /// @param distance from the key to the query
    KOKKOS_FUNCTION ScoreAt<Acc> at(Acc product, i64 distance) const {
        ScoreAt<Acc> score{product, Acc(1)};
        if (cap > Acc(0)) {
            Acc const bounded = Kokkos::tanh(product / cap);
            score = {cap * bounded, Acc(1) - bounded * bounded};
        }
        score.value -= alibi * static_cast<Acc>(distance < 0 ? -distance : distance);
        return score;
    }
};

/// f(PlainScores or ChangedScores), as the scores are: kernels that change none are compiled for that.
template <class Acc, class F>
void with_scores(AttentionScores const& scores, F const& f) {
    if (scores.soft_cap > 0 || scores.alibi_heads > 0)
        f(ChangedScores<Acc>(scores));
    else
        f(PlainScores<Acc>());
}

} // namespace detail
} // namespace pentad::kernels
