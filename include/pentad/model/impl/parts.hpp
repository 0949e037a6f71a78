// The functions of <pentad/model/parts.hpp>.
#pragma once

#include <pentad/model/parts.hpp>

#include <pentad/mesh/inline.hpp>

#include <array>
#include <charconv>
#include <cmath>

namespace pentad::model {

PENTAD_INLINE std::string Scores::text() const {
    std::array<char, 32> cap{};
    char* const end = std::to_chars(cap.data(), cap.data() + cap.size(), soft_cap).ptr;
    return (soft_cap > 0 ? ", scores capped at " + std::string(cap.data(), end) : "") + (alibi ? ", ALiBi" : "") +
           (sinks ? ", sinks" : "");
}

PENTAD_INLINE std::string Attention::text() const {
    return std::to_string(heads) + " heads, " + std::to_string(kv_heads) + " of keys and values, of " +
           std::to_string(head_dim) + (has_bias ? ", biases" : "") +
           (norms_queries_and_keys ? ", norms of queries and keys" : "") + (sight.causal ? "" : ", not causal") +
           (sight.window > 0 ? ", window of " + std::to_string(sight.window) : "") +
           (rotates || scores.alibi ? "" : ", not turned") + scores.text();
}

PENTAD_INLINE double LatentAttention::score_scale() const {
    return rotary.yarn.score_factor() / std::sqrt(static_cast<double>(width()));
}

PENTAD_INLINE std::string LatentAttention::text() const {
    return std::to_string(heads) + " heads of " + std::to_string(head_dim) + " + " + std::to_string(rope_dim) +
           ", values of " + std::to_string(value_dim) + ", ranks " + std::to_string(query_rank) + " and " +
           std::to_string(kv_rank) + (sight.causal ? "" : ", not causal") +
           (sight.window > 0 ? ", window of " + std::to_string(sight.window) : "");
}

PENTAD_INLINE std::string Mamba2::refusal(std::size_t tp) const {
    auto const are = [tp](std::size_t n, std::string const& what) {
        return std::to_string(n) + " " + what + " and tp = " + std::to_string(tp) + ": ";
    };
    auto const fits = [tp](std::size_t n) { return n > 0 && (n % tp == 0 || tp % n == 0); };
    if (groups == 0 || heads % groups != 0)
        return std::to_string(heads) + " heads are not a multiple of " + std::to_string(groups) + " groups";
    if (heads % tp != 0) return are(heads, "heads of Mamba-2") + "the first must be a multiple of the second";
    if (!fits(groups)) return are(groups, "groups of Mamba-2") + "neither is a multiple of the other";
    if (groups * state % tp != 0)
        return are(groups * state, "elements of B and C of Mamba-2 (groups x state)") +
               "the first must be a multiple of the second";
    if (!fits(norm_groups)) return are(norm_groups, "groups of Mamba-2's norm") + "neither is a multiple of the other";
    return {};
}

PENTAD_INLINE std::vector<double> LinearAttention::log_decays() const {
    std::vector<double> result(heads, 0);
    for (std::size_t i = 0; i < heads; ++i) {
        auto const head = static_cast<double>(i + 1);
        if (fading == Fading::slopes) result[i] = -scale * std::exp2(-8 * head / static_cast<double>(heads));
        if (fading == Fading::retention) result[i] = std::log1p(-std::exp2(-4 - head));
    }
    return result;
}

PENTAD_INLINE std::string LinearAttention::text() const {
    return std::to_string(heads) + " heads of " + std::to_string(head_dim) +
           (fading == Fading::none        ? ", nothing fades"
            : fading == Fading::retention ? ", retention"
                                          : ", slopes");
}

} // namespace pentad::model
