// In which order a rank multiplies the panels of a product, and which blocks of the factors go from which rank to which
// for each.
#pragma once

#include <pentad/layout/block.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pentad::detail {

/// Elements [begin, end) of a dimension.
struct IndexRange {
    std::size_t begin = 0, end = 0;

    [[nodiscard]] constexpr std::size_t size() const { return end - begin; }
    [[nodiscard]] constexpr IndexRange common(IndexRange const& other) const {
        std::size_t const first = std::max(begin, other.begin);
        return {first, std::max(first, std::min(end, other.end))};
    }
};

/// A part of a factor: of the dimension that the result has too, and of the one that is summed.
struct FactorBlock {
    IndexRange outer, inner;

    [[nodiscard]] constexpr std::size_t size() const { return outer.size() * inner.size(); }
    [[nodiscard]] constexpr FactorBlock common(FactorBlock const& other) const {
        return {outer.common(other.outer), inner.common(other.inner)};
    }
};

/// How a matrix lies on a mesh.
struct MatrixOnMesh {
    LayoutValue layout;
    std::array<std::size_t, 2> extents{};
    std::span<MeshAxisValue const> mesh;

    /// Into how many blocks a dimension is cut.
    [[nodiscard]] std::size_t blocks(std::size_t dimension) const {
        return ranks_along(mesh, layout.dimensions[dimension].axes);
    }
    [[nodiscard]] IndexRange range(std::size_t dimension, int rank) const {
        auto const block = block_of(layout.dimensions[dimension], extents[dimension], mesh, rank);
        return {block.begin(), block.end()};
    }
    /// The length of the longest block.
    [[nodiscard]] std::size_t longest(std::size_t dimension) const {
        return (extents[dimension] + blocks(dimension) - 1) / blocks(dimension);
    }
    /// Which of the copies of its part a rank has: its place along the axes of `among` that shard no dimension.
    [[nodiscard]] std::size_t copy(AxisNames const& among, int rank) const {
        AxisNames axes;
        for (auto const axis : among)
            if (layout.dimension_of(axis) == layout.rank) axes.push(axis);
        return place_along(mesh, axes, rank);
    }
};

/// A factor where it is held, each element by one rank of each copy, and where it is multiplied. Ranks are those of the
/// world, of which a group exchanges the factor.
struct FactorMove {
    MatrixOnMesh held, used;
    std::size_t inner = 0;       ///< which dimension is summed
    AxisNames axes;              ///< along which the group lies, of the mesh on which it is held
    bool between_meshes = false; ///< the group is the world: the factor is multiplied on another mesh
    std::vector<int> members;
    std::size_t me = 0; ///< among the members

    [[nodiscard]] FactorBlock held_by(int rank) const { return {held.range(1 - inner, rank), held.range(inner, rank)}; }
    [[nodiscard]] FactorBlock used_by(int rank) const { return {used.range(1 - inner, rank), used.range(inner, rank)}; }
};

/// What a rank of the group gives or takes for a panel.
struct FactorPiece {
    std::size_t member;
    FactorBlock block;
};

/// The pieces of a factor for each panel.
struct FactorSchedule {
    std::vector<std::vector<FactorPiece>> taken; ///< of my panels, in their order: those that I hold too
    std::vector<std::vector<FactorPiece>> given; ///< of the panels of others, in their order
    std::size_t given_elements = 0;
    double mean_given = 0;   ///< over the ranks of the group
    std::size_t longest = 0; ///< elements that arrive for a panel, at most
};

/// The panels of a rank: its part of the summed dimension, cut where the holders of a factor change, into pieces of at
/// most `most` elements. It begins with the one that lies as far from the beginning as its own parts of both factors
/// together: so on a grid, where rank (r, c) begins with panel r + c (Cannon 1969), no two ranks read from one at once.
inline std::vector<IndexRange> panels_of(FactorMove const& a, FactorMove const& b, int rank, std::size_t most) {
    auto const all = a.used_by(rank).inner;
    if (all.size() == 0) return {};
    std::vector<std::size_t> cuts{all.begin, all.end};
    for (auto const* factor : {&a, &b}) {
        std::size_t const blocks = factor->held.blocks(factor->inner);
        std::size_t const extent = factor->held.extents[factor->inner];
        for (std::size_t i = all.begin * blocks / extent; i < blocks; ++i) {
            std::size_t const at = Block{extent, blocks, i}.begin();
            if (at >= all.end) break;
            if (at > all.begin) cuts.push_back(at);
        }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<IndexRange> panels;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        std::size_t const length = cuts[i + 1] - cuts[i], pieces = 1 + (length - 1) / most;
        for (std::size_t p = 0; p < pieces; ++p)
            panels.push_back({cuts[i] + length * p / pieces, cuts[i] + length * (p + 1) / pieces});
    }
    std::size_t const far = a.held_by(rank).inner.begin + b.held_by(rank).inner.begin;
    std::size_t const first = all.begin + (far + 2 * (all.size() - all.begin % all.size())) % all.size();
    auto const begins = std::find_if(panels.begin(), panels.end(), [&](auto const& p) { return first < p.end; });
    std::rotate(panels.begin(), begins, panels.end());
    return panels;
}

/// Elements that arrive for a panel, at most, on any rank of the group.
inline std::size_t longest_of_any(FactorMove const& of, FactorMove const& a, FactorMove const& b, std::size_t most) {
    std::size_t longest = 0;
    for (int const member : of.members) {
        auto const held = of.held_by(member), used = of.used_by(member);
        for (auto const& panel : panels_of(a, b, member, most)) {
            FactorBlock const wanted{used.outer, panel};
            longest = std::max(longest, wanted.size() - wanted.common(held).size());
        }
    }
    return longest;
}

/// What of factor `of` moves for these panels.
inline FactorSchedule schedule_of(FactorMove const& of, FactorMove const& a, FactorMove const& b, std::size_t most) {
    FactorSchedule schedule;
    int const mine = of.members[of.me];
    auto const held = of.held_by(mine), used = of.used_by(mine);
    std::size_t const copy = of.held.copy(of.axes, mine);
    for (int const member : of.members) {
        auto const wanted = of.used_by(member);
        schedule.mean_given += static_cast<double>(wanted.size() - wanted.common(of.held_by(member)).size()) /
                               static_cast<double>(of.members.size());
    }
    for (auto const& panel : panels_of(a, b, mine, most)) {
        auto& pieces = schedule.taken.emplace_back();
        std::size_t arriving = 0;
        for (std::size_t p = 0; p < of.members.size(); ++p) {
            if (of.held.copy(of.axes, of.members[p]) != copy) continue;
            auto const block = of.held_by(of.members[p]).common({used.outer, panel});
            if (block.size() == 0) continue;
            pieces.push_back({p, block});
            if (p != of.me) arriving += block.size();
        }
        schedule.longest = std::max(schedule.longest, arriving);
    }
    for (std::size_t p = 0; p < of.members.size(); ++p) {
        if (p == of.me || of.held.copy(of.axes, of.members[p]) != copy) continue;
        auto const needed = held.common(of.used_by(of.members[p]));
        if (needed.size() == 0) continue;
        schedule.given_elements += needed.size();
        auto const panels = panels_of(a, b, of.members[p], most);
        if (schedule.given.size() < panels.size()) schedule.given.resize(panels.size());
        for (std::size_t s = 0; s < panels.size(); ++s)
            if (auto const block = needed.common({needed.outer, panels[s]}); block.size() > 0)
                schedule.given[s].push_back({p, block});
    }
    return schedule;
}

} // namespace pentad::detail
