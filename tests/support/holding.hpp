// What a rank of a mesh holds of a tensor, worked out from the words of a layout alone, and layouts drawn at random.
#pragma once

#include <pentad/layout/layout.hpp>
#include <pentad/mesh/mesh.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

class Holding {
  public:
    Holding(pentad::LayoutValue const& layout, std::span<std::size_t const> extents,
            std::span<pentad::MeshAxisValue const> mesh, int rank)
        : layout_(layout), mesh_(mesh), extents_(extents), rank_(rank) {
        for (std::size_t d = 0; d < extents.size(); ++d) {
            std::size_t shards = 1, mine = 0;
            for (auto const axis : layout.dimensions[d].axes) { // major to minor
                auto const along = pentad::find_axis(mesh, axis);
                shards *= static_cast<std::size_t>(along.extent);
                mine = mine * static_cast<std::size_t>(along.extent) + static_cast<std::size_t>(along.coordinate(rank));
            }
            first_[d] = extents[d] * mine / shards; // uneven blocks: those of neighbours differ by one at most
            local_[d] = extents[d] * (mine + 1) / shards - first_[d];
        }
    }
    [[nodiscard]] std::size_t local(std::size_t d) const { return local_[d]; }
    [[nodiscard]] std::span<std::size_t const> extents() const { return extents_; }
    [[nodiscard]] std::size_t size() const {
        std::size_t product = 1;
        for (std::size_t d = 0; d < extents_.size(); ++d) product *= local_[d];
        return product;
    }
    /// The place of local element i among all elements.
    [[nodiscard]] std::size_t global(std::size_t i) const {
        std::size_t place = 0, stride = 1;
        for (std::size_t d = extents_.size(); d-- > 0; stride *= extents_[d]) {
            place += (first_[d] + i % local_[d]) * stride;
            i /= local_[d];
        }
        return place;
    }
    /// Which of the summands this rank holds: its coordinates along the partial axes.
    [[nodiscard]] int summand() const { return number(layout_.partial); }
    [[nodiscard]] bool is_first_along(pentad::AxisNames const& axes) const { return number(axes) == 0; }
    [[nodiscard]] pentad::AxisNames invariant() const {
        pentad::AxisNames axes;
        for (auto const& axis : mesh_)
            if (layout_.placement(axis.name) == pentad::Placement::invariant) axes.push(axis.name);
        return axes;
    }
    /// Whether it counts in a pairing of a value and a gradient: once over axes along which both are invariant.
    [[nodiscard]] bool counts() const { return is_first_along(invariant()); }

  private:
    [[nodiscard]] int number(pentad::AxisNames const& axes) const {
        int result = 0;
        for (auto const axis : axes) {
            auto const along = pentad::find_axis(mesh_, axis);
            result = result * along.extent + along.coordinate(rank_);
        }
        return result;
    }
    pentad::LayoutValue layout_;
    std::span<pentad::MeshAxisValue const> mesh_;
    std::span<std::size_t const> extents_;
    int rank_;
    std::array<std::size_t, pentad::max_dimensions> local_{}, first_{};
};

/// A whole number between -8 and 8 for each element and summand: sums of them are exact.
inline double number(int seed, std::size_t element, int summand) {
    std::uint64_t x =
        element * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(seed * 64 + summand + 1) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    return static_cast<double>((x >> 40) % 17) - 8;
}
inline std::vector<double> shard(Holding const& mine, int seed) {
    std::vector<double> numbers(mine.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number(seed, mine.global(i), mine.summand());
    return numbers;
}

/// The layout of the gradient, as a value.
inline pentad::LayoutValue dual(pentad::LayoutValue layout) {
    std::swap(layout.partial, layout.replicated);
    return layout;
}

/// The prime factors of so many ranks, each along one of three axes. @param below(n) draws a number below n
template <class Below>
std::array<int, 3> drawn_mesh(int ranks, Below const& below) {
    std::array<int, 3> extents{1, 1, 1};
    while (ranks > 1) {
        int const factor = ranks % 2 == 0 ? 2 : ranks;
        extents[below(3)] *= factor;
        ranks /= factor;
    }
    return extents;
}

/// Axes placed one after the other: `place(axis)` is a dimension, or the rank for replicated, + 1 for partial, + 2 for
/// invariant.
template <class Place>
pentad::LayoutValue placed(pentad::LayoutValue layout, std::span<std::string_view const> axes, Place const& place) {
    for (auto const axis : axes) {
        std::size_t const at = place(axis);
        if (at < layout.rank)
            layout.dimensions[at].axes.push(axis);
        else if (at == layout.rank)
            layout.replicated.push(axis);
        else if (at == layout.rank + 1)
            layout.partial.push(axis);
    }
    return layout;
}

} // namespace support
