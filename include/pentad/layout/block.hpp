// Contiguous blocks of a dimension, one for each rank along the axes that shard it, and the shape of a shard.
#pragma once

#include <pentad/layout/layout.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace pentad {

/// Block `index` of `count` blocks of `extent` elements. They differ by one element at most, and a block is the union
/// of those that it is cut into, so that axes can be added and removed one by one.
struct Block {
    std::size_t extent = 0, count = 1, index = 0;

    [[nodiscard]] constexpr std::size_t begin() const { return extent * index / count; }
    [[nodiscard]] constexpr std::size_t end() const { return extent * (index + 1) / count; }
    [[nodiscard]] constexpr std::size_t size() const { return end() - begin(); }
    /// Block i of the n that this one is cut into.
    [[nodiscard]] constexpr Block part(std::size_t n, std::size_t i) const {
        return {extent, count * n, index * n + i};
    }
    /// The block of which this one is one of n.
    [[nodiscard]] constexpr Block whole(std::size_t n) const { return {extent, count / n, index / n}; }
};

/// The block of a rank of the mesh.
constexpr Block block_of(DimensionValue const& dimension, std::size_t extent, std::span<MeshAxisValue const> mesh,
                         int rank) {
    Block block{extent};
    for (auto const axis : dimension.axes) {
        auto const along = find_axis(mesh, axis);
        block = block.part(static_cast<std::size_t>(along.extent), static_cast<std::size_t>(along.coordinate(rank)));
    }
    return block;
}

/// Elements [begin, end) of each dimension.
struct ElementBox {
    std::array<std::size_t, max_dimensions> begin{}, end{};

    [[nodiscard]] constexpr std::size_t extent(std::size_t d) const { return end[d] - begin[d]; }
    /// Elements of the first `rank` dimensions.
    [[nodiscard]] constexpr std::size_t size(std::size_t rank) const {
        std::size_t product = 1;
        for (std::size_t d = 0; d < rank; ++d) product *= extent(d);
        return product;
    }
    /// What lies in both boxes; empty where nothing does.
    [[nodiscard]] constexpr ElementBox common(ElementBox const& other, std::size_t rank) const {
        ElementBox both;
        for (std::size_t d = 0; d < rank; ++d) {
            both.begin[d] = std::max(begin[d], other.begin[d]);
            both.end[d] = std::max(both.begin[d], std::min(end[d], other.end[d]));
        }
        return both;
    }
    friend constexpr bool operator==(ElementBox const&, ElementBox const&) = default;
};

/// The extents of a shard on its way through a plan. Where blocks may be uneven, or have ghost cells, it is
/// known which block of a dimension this is; else the global extent need not be known.
struct ShardShape {
    std::array<std::size_t, max_dimensions> local{};
    std::size_t rank = 0;
    std::array<Block, max_dimensions> blocks{};       ///< of extent 0: equal blocks
    std::array<std::size_t, max_dimensions> ghosts{}; ///< cells on each side, which `local` counts too

    /// Whether n blocks of dimension d that make one, or those that one is cut into, differ.
    [[nodiscard]] constexpr bool is_uneven(std::size_t d, std::size_t n, bool is_cut) const {
        return blocks[d].extent % (blocks[d].count * (is_cut ? n : 1)) != 0;
    }
    /// Dimension d becomes block i of the n that it is cut into.
    constexpr void cut(std::size_t d, std::size_t n, std::size_t i) {
        if (blocks[d].extent == 0)
            local[d] /= n;
        else
            local[d] = (blocks[d] = blocks[d].part(n, i)).size();
    }
    /// Dimension d becomes the block of which it is one of n.
    constexpr void join(std::size_t d, std::size_t n) {
        if (blocks[d].extent == 0)
            local[d] *= n;
        else
            local[d] = (blocks[d] = blocks[d].whole(n)).size();
    }
    /// Where this block of dimension d begins in the block that it is number `i` of n parts of.
    [[nodiscard]] constexpr std::size_t place(std::size_t d, std::size_t n, std::size_t i) const {
        return blocks[d].extent == 0 ? i * local[d] : blocks[d].begin() - blocks[d].whole(n).begin();
    }
    /// All of the shard's memory.
    [[nodiscard]] constexpr ElementBox memory() const {
        ElementBox box;
        for (std::size_t d = 0; d < rank; ++d) box.end[d] = local[d];
        return box;
    }
    [[nodiscard]] constexpr std::size_t product(std::size_t begin, std::size_t end) const {
        std::size_t result = 1;
        for (std::size_t d = begin; d < end; ++d) result *= local[d];
        return result;
    }
    [[nodiscard]] constexpr std::size_t size() const { return product(0, rank); }
};

} // namespace pentad
