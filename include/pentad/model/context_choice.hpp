// How attention goes over cp, as a user asks for it: one set of words and rules for trainers, the planner and command
// lines.
#pragma once

#include <pentad/layout/partition.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::model {

/// A strategy, and how cp is split for it.
struct ContextSplit {
    ContextStrategy strategy = ContextStrategy::ring;
    std::int64_t inner = 1; ///< extent of inner(cp); 1: not split

    friend bool operator==(ContextSplit const&, ContextSplit const&) = default;
    /// Ranks that exchange heads; 1: none do.
    [[nodiscard]] std::int64_t head_ranks(std::int64_t cp) const {
        return pentad::head_ranks(strategy, cp / inner, inner);
    }
    /// Why it is not defined for as many ranks of cp and as many query heads of a rank of tp; empty where it is.
    [[nodiscard]] std::string refusal(std::int64_t cp, std::int64_t heads) const {
        if (inner < 1 || cp % inner != 0)
            return "inner(cp) = " + std::to_string(inner) + " does not divide cp = " + std::to_string(cp);
        if (heads % head_ranks(cp) == 0) return {};
        return std::to_string(heads) + " heads of a rank of tp are not divisible by the " +
               std::to_string(head_ranks(cp)) + " ranks of cp that exchange heads";
    }
};

/// The values of --cp, --cp-heads and --cp-inner.
struct ContextChoice {
    enum class Kind { ring, all_gather, ulysses, two_level, double_ring, automatic };
    Kind kind = Kind::ring;
    std::int64_t heads = 0; ///< two levels: ranks that exchange heads, inner or cp / inner; 0: inner
    std::int64_t inner = 0; ///< two levels, double ring: neighbours along cp; 0: heads, or the ranks of a node

    /// The flags of a split.
    static ContextChoice of(ContextSplit const& split, std::int64_t cp) {
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

    [[nodiscard]] bool has_parts() const { return kind == Kind::two_level || kind == Kind::double_ring; }
    /// Whether the split of cp depends on how its ranks lie on nodes.
    [[nodiscard]] bool follows_nodes() const { return has_parts() && heads == 0 && inner == 0; }
    /// The split of cp; of automatic a ring. @param per_node ranks of cp on a node, for a choice that follows nodes
    [[nodiscard]] ContextSplit on(std::int64_t cp, std::int64_t per_node = 1) const {
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

    /// What is wrong with `heads`, and with `inner`; empty where nothing is.
    [[nodiscard]] std::string refused_heads(std::int64_t cp) const;
    [[nodiscard]] std::string refused_inner(std::int64_t cp) const;
    /// What is wrong with a choice that follows nodes. @param per_node neighbours along cp that each node has; 0: nodes
    /// differ
    [[nodiscard]] std::string refused_nodes(std::int64_t cp, std::int64_t per_node) const;
    /// "--cp double-ring --cp-inner 2"
    [[nodiscard]] std::string flags() const;
    /// "double-ring inner=2"
    [[nodiscard]] std::string text() const;
};
/// The words of --cp, in the order of ContextChoice::Kind.
inline constexpr std::array<std::string_view, 6> context_names{"ring",      "allgather",   "ulysses",
                                                               "two-level", "double-ring", "auto"};
inline std::string_view name(ContextChoice::Kind kind) { return context_names[static_cast<std::size_t>(kind)]; }

inline std::string ContextChoice::refused_heads(std::int64_t cp) const {
    if (heads == 0) return {};
    auto const given = "--cp-heads " + std::to_string(heads);
    if (kind != Kind::two_level) return given + " says nothing without --cp two-level";
    if (cp % heads != 0) return given + " does not divide cp = " + std::to_string(cp);
    if (heads == 1 && cp > 1) return given + " exchanges no heads: take 2 or more, or --cp ring";
    if (inner == 0 || heads == inner || heads * inner == cp) return {};
    return given + " is neither --cp-inner " + std::to_string(inner) +
           " nor cp / --cp-inner = " + std::to_string(cp / inner);
}
inline std::string ContextChoice::refused_inner(std::int64_t cp) const {
    if (inner == 0) return {};
    auto const given = "--cp-inner " + std::to_string(inner);
    if (!has_parts()) return given + " says nothing without --cp two-level or double-ring";
    if (cp % inner != 0) return given + " does not divide cp = " + std::to_string(cp);
    return inner == 1 && cp > 1 ? given + " splits nothing: take 2 or more, or --cp ring" : "";
}
inline std::string ContextChoice::refused_nodes(std::int64_t cp, std::int64_t per_node) const {
    if (!follows_nodes() || per_node > 1 || cp == 1) return {};
    return "--cp " + std::string(name(kind)) + " splits cp = " + std::to_string(cp) +
           " by nodes, and not every node has 2 or more neighbours along it: give --cp-inner N, or take --cp ring";
}
inline std::string ContextChoice::flags() const {
    return "--cp " + std::string(name(kind)) + (heads > 0 ? " --cp-heads " + std::to_string(heads) : "") +
           (inner > 0 ? " --cp-inner " + std::to_string(inner) : "");
}
inline std::string ContextChoice::text() const {
    return std::string(name(kind)) + (heads > 0 ? " heads=" + std::to_string(heads) : "") +
           (inner > 0 ? " inner=" + std::to_string(inner) : "");
}

/// The splits that a choice leaves open and that are defined, the simplest first.
/// @param heads query heads of a rank of tp @param insides extents of inner(cp) to try, where none is asked for
inline std::vector<ContextSplit> context_splits(ContextChoice const& asked, std::int64_t cp, std::int64_t heads,
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
