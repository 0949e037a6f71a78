// How attention goes over cp, as a user asks for it: one set of words and rules for trainers, the planner and command
// lines.
#pragma once

#include <pentad/layout/partition.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
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
    [[nodiscard]] std::string refusal(std::int64_t cp, std::int64_t heads) const;
};

/// The values of --cp, --cp-heads and --cp-inner.
struct ContextChoice {
    enum class Kind { ring, all_gather, ulysses, two_level, double_ring, automatic };
    Kind kind = Kind::ring;
    std::int64_t heads = 0; ///< two levels: ranks that exchange heads, inner or cp / inner; 0: inner
    std::int64_t inner = 0; ///< two levels, double ring: neighbours along cp; 0: heads, or the ranks of a node

    /// The flags of a split.
    static ContextChoice of(ContextSplit const& split, std::int64_t cp);

    [[nodiscard]] bool has_parts() const { return kind == Kind::two_level || kind == Kind::double_ring; }
    /// Whether the split of cp depends on how its ranks lie on nodes.
    [[nodiscard]] bool follows_nodes() const { return has_parts() && heads == 0 && inner == 0; }
    /// The split of cp; of automatic a ring. @param per_node ranks of cp on a node, for a choice that follows nodes
    [[nodiscard]] ContextSplit on(std::int64_t cp, std::int64_t per_node = 1) const;

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
std::vector<ContextSplit> context_splits(ContextChoice const& asked, std::int64_t cp, std::int64_t heads,
                                         std::span<std::int64_t const> insides);

} // namespace pentad::model

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/model/impl/context_choice.hpp>
#endif
