// Names of tensor dimensions, and one dimension of a layout: its name, its global extent
// and the mesh axes that shard it.
#pragma once

#include <pentad/mesh/axis.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace pentad {

/// A name of a tensor dimension: an empty type with a static `name`. Users may define their own. Where its shards may
/// be uneven, it says so: `static constexpr bool has_uneven_blocks = true;`.
template <class D>
concept DimensionTag = std::is_empty_v<D> && requires {
    { D::name } -> std::convertible_to<std::string_view>;
};

namespace detail {
template <class D>
inline constexpr bool has_uneven_blocks = false;
template <class D>
    requires requires { D::has_uneven_blocks; }
inline constexpr bool has_uneven_blocks<D> = D::has_uneven_blocks;
} // namespace detail

/// One dimension of a layout: its name, its global extent, and the axes that shard it, major to minor. Shards are
/// contiguous. The extent must be divisible by the product of the axes' extents, but where the name has uneven blocks:
/// there shards may differ by one (layout/block.hpp).
template <class Name, std::size_t Extent = dynamic, class... ShardedOver>
struct Dim {
    using tag = Name;
    static constexpr std::size_t extent = Extent;
};

/// What lies beyond the first and the last element of a dimension: nothing, or the last and the first.
enum class Boundary : std::uint8_t { open, periodic };
/// What the ghost cells of a shard hold.
enum class Ghosts : std::uint8_t {
    none,     ///< there are none
    stale,    ///< nothing of a meaning, e.g. since the owned cells have been written
    filled,   ///< what the owners of these cells hold
    summands, ///< what is to be added to the owners' cells: the dual of `filled`
};

/// A dimension whose shards have `Width` ghost cells on both sides: copies of the neighbours' nearest cells, corners
/// included where several dimensions have them. Those beyond an open boundary belong to the user: nothing writes them.
template <class Dimension, std::size_t Width, Boundary Ends = Boundary::open, Ghosts State = Ghosts::filled>
struct Halo {
    using tag = typename Dimension::tag;
    static constexpr std::size_t extent = Dimension::extent;
    static_assert(Width > 0 && State != Ghosts::none, "pentad: a halo is at least one cell wide");
};

} // namespace pentad
