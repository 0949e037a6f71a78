// The functions of <pentad/model/context_choice.hpp>.
#pragma once

#include <pentad/model/context_choice.hpp>

#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <numeric>

namespace pentad::model {

PENTAD_INLINE std::string ContextSplit::refusal(std::int64_t cp, std::int64_t heads) const {
    if (inner < 1 || cp % inner != 0)
        return "inner(cp) = " + std::to_string(inner) + " does not divide cp = " + std::to_string(cp);
    if (heads % head_ranks(cp) == 0) return {};
    return std::to_string(heads) + " heads of a rank of tp are not divisible by the " + std::to_string(head_ranks(cp)) +
           " ranks of cp that exchange heads";
}

PENTAD_INLINE auto ContextChoice::of(ContextSplit const& split, std::int64_t cp) -> ContextChoice {
    switch (split.strategy) {
    case ContextStrategy::ring:
        return {Kind::ring};
    case ContextStrategy::all_gather:
        return {Kind::all_gather};
    case ContextStrategy::double_ring:
        return {Kind::double_ring, 0, split.inner};
    case ContextStrategy::heads_ring:
        return split.inner == cp ? ContextChoice{Kind::ulysses} : ContextChoice{Kind::two_level, split.inner};
    default:
        return {Kind::two_level, cp / split.inner, split.inner};
    }
}

PENTAD_INLINE ContextSplit ContextChoice::on(std::int64_t cp, std::int64_t per_node) const {
    if (cp == 1) return {};
    auto const inside = inner > 0 ? inner : heads > 0 ? heads : per_node;
    switch (kind) {
    case Kind::all_gather:
        return {ContextStrategy::all_gather};
    case Kind::ulysses:
        return {ContextStrategy::heads_ring, cp};
    case Kind::two_level:
        return {heads == 0 || heads == inside ? ContextStrategy::heads_ring : ContextStrategy::ring_heads, inside};
    case Kind::double_ring:
        return {ContextStrategy::double_ring, inside};
    default:
        return {};
    }
}

PENTAD_INLINE std::string ContextChoice::refused_heads(std::int64_t cp) const {
    if (heads == 0) return {};
    auto const given = "--cp-heads " + std::to_string(heads);
    if (kind != Kind::two_level) return given + " says nothing without --cp two-level";
    if (cp % heads != 0) return given + " does not divide cp = " + std::to_string(cp);
    if (heads == 1 && cp > 1) return given + " exchanges no heads: take 2 or more, or --cp ring";
    if (inner == 0 || heads == inner || heads * inner == cp) return {};
    return given + " is neither --cp-inner " + std::to_string(inner) +
           " nor cp / --cp-inner = " + std::to_string(cp / inner);
}

PENTAD_INLINE std::string ContextChoice::refused_inner(std::int64_t cp) const {
    if (inner == 0) return {};
    auto const given = "--cp-inner " + std::to_string(inner);
    if (!has_parts()) return given + " says nothing without --cp two-level or double-ring";
    if (cp % inner != 0) return given + " does not divide cp = " + std::to_string(cp);
    return inner == 1 && cp > 1 ? given + " splits nothing: take 2 or more, or --cp ring" : "";
}

PENTAD_INLINE std::vector<ContextSplit> context_splits(ContextChoice const& asked, std::int64_t cp, std::int64_t heads,
                                                       std::span<std::int64_t const> insides) {
    std::vector<ContextSplit> found;
    auto const add = [&](ContextSplit const& split) {
        if (split.refusal(cp, heads).empty() && std::find(found.begin(), found.end(), split) == found.end())
            found.push_back(split);
    };
    using enum ContextStrategy;
    if (cp == 1) {
        add({});
    } else if (asked.kind == ContextChoice::Kind::automatic) {
        add({ring});
        add({all_gather});
        add({heads_ring, cp});
        for (auto const inside : insides) {
            if (inside < 2 || inside >= cp) continue;
            add({heads_ring, inside});
            if (inside * inside != cp) add({ring_heads, inside}); // flags have no word for it
            add({double_ring, inside});
        }
        // Where there are not enough heads for all of cp, as many as there are.
        if (auto const most = std::gcd(cp, heads); most > 1 && most < cp) add({heads_ring, most});
    } else if (asked.follows_nodes()) {
        for (auto const inside : insides)
            if (asked.refused_nodes(cp, inside).empty()) add(asked.on(cp, inside));
    } else if (asked.refused_heads(cp).empty() && asked.refused_inner(cp).empty()) {
        add(asked.on(cp));
    }
    return found;
}

} // namespace pentad::model
