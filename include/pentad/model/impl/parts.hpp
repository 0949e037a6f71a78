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

PENTAD_INLINE std::optional<Refusal> Attention::refusal(PartRanks const& on) const {
    if (auto refused = indivisible_by_tensor("heads", heads, on.by.heads, on)) return refused;
    if (on.tensor_kind != TensorKind::one_d)
        return indivisible_by_tensor("kv_heads", key_value_heads(), on.by.kv_heads, on);
    auto const shares = static_cast<std::int64_t>(key_value_heads());
    if (shares % on.tp == 0 || on.tp % shares == 0) return std::nullopt;
    return Refusal{"kv_heads", "kv_heads = " + std::to_string(shares) + " and " + on.tensor_text(on.tp) +
                                   ": neither divides the other"};
}

PENTAD_INLINE std::optional<Refusal> Mamba2::refusal(PartRanks const& on) const {
    auto const tp = static_cast<std::size_t>(on.tp);
    auto const fits = [tp](std::size_t n) { return n > 0 && (n % tp == 0 || tp % n == 0); };
    auto const neither = [&](std::string const& what, std::size_t n) {
        return Refusal{"groups", what + " = " + std::to_string(n) + " and " + on.tensor_text(on.tp) +
                                     ": neither divides the other"};
    };
    if (groups == 0 || heads % groups != 0)
        return Refusal{"groups", "groups = " + std::to_string(groups) + " does not divide the " +
                                     std::to_string(heads) + " heads of Mamba-2"};
    if (heads % tp != 0)
        return Refusal{"heads",
                       std::to_string(heads) + " heads of Mamba-2 are not divisible by " + on.tensor_text(on.tp)};
    if (!fits(groups)) return neither("groups", groups);
    if (groups * state % tp != 0)
        return Refusal{"state", "groups x state = " + std::to_string(groups) + " x " + std::to_string(state) +
                                    " is not divisible by " + on.tensor_text(on.tp)};
    if (!fits(norm_groups)) return neither("norm_groups", norm_groups);
    return std::nullopt;
}

PENTAD_INLINE std::optional<Refusal> Experts::refusal(PartRanks const& on) const {
    auto const size = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    if (auto refused = indivisible("expert_count", size(count), on.ep, [&] { return "ep = " + std::to_string(on.ep); }))
        return refused;
    if (auto refused = indivisible("expert_ffn", size(width), on.etp,
                                   [&] { return (on.etp == on.tp ? "tp = " : "etp = ") + std::to_string(on.etp); }))
        return refused;
    if (shared * width % static_cast<std::size_t>(on.by.width) == 0) return std::nullopt;
    return Refusal{"expert_ffn", "shared_experts = " + std::to_string(shared) + " of expert_ffn = " +
                                     std::to_string(width) + " are not divisible by " + on.tensor_text(on.by.width)};
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
