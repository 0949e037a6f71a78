// What attention_scores.hpp says, on vectors of queries, in units of log 2.
#pragma once

#include <pentad/kernels/detail/attention_host_tiles.hpp>
#include <pentad/kernels/detail/attention_scores.hpp>
#include <pentad/kernels/detail/simd.hpp>

namespace pentad::kernels::detail {

/// The scores of one head.
template <class Acc>
class HostScores {
  public:
    HostScores(AttentionScores const& scores, i64 head)
        : factor_(static_cast<Acc>(scores.scale) * log2_e<Acc>), cap_(static_cast<Acc>(scores.soft_cap) * log2_e<Acc>),
          alibi_(scores.alibi_heads > 0
                     ? static_cast<Acc>(alibi_slope(scores.first_head + head, scores.alibi_heads)) * log2_e<Acc>
                     : Acc(0)) {
        for (int lane = 0; lane < lanes<Acc>; ++lane) lane_[lane] = static_cast<Acc>(lane);
    }

    /// From products to scores that are neither capped nor penalised by distance.
    [[nodiscard]] Acc factor() const { return factor_; }
    /// Whether they are either.
    [[nodiscard]] bool change() const { return cap_ > Acc(0) || alibi_ > Acc(0); }
    /// @param first_distance from the key to the first query of the vector
    [[nodiscard]] ScoreAt<Vector<Acc>> at(Vector<Acc> const& product, i64 first_distance) const {
        ScoreAt<Vector<Acc>> score{product * factor_, broadcast(Acc(1))};
        if (cap_ > Acc(0)) {
            Vector<Acc> const bounded = tanh<Acc>(score.value / cap_);
            score = {cap_ * bounded, Acc(1) - bounded * bounded};
        }
        Vector<Acc> const distance = lane_ + static_cast<Acc>(first_distance);
        score.value -= alibi_ * larger<Vector<Acc>>(distance, -distance);
        return score;
    }
    /// Scores in place of the products of a tile, [keys, tile_queries].
    /// @param first_distance from the first key to the first query
    void apply(int keys, Acc* scores, i64 first_distance) const {
        for (int key = 0; key < keys; ++key)
            for (int q = 0; q < tile_queries; q += lanes<Acc>) {
                Acc* const score = scores + key * tile_queries + q;
                store(score, at(load(score), first_distance + q - key).value);
            }
    }

  private:
    Acc factor_;
    Acc cap_, alibi_; ///< 0: none
    Vector<Acc> lane_{};
};

} // namespace pentad::kernels::detail
