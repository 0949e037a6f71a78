// Whether a layout fits a mesh: every axis it names exists there, and static extents
// divide.
#pragma once

#include <pentad/layout/layout.hpp>
#include <pentad/mesh/fold.hpp>
#include <pentad/mesh/mesh.hpp>

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace pentad {

namespace detail {

/// Product of the extents of the axes that shard a dimension, or `dynamic` when one of them is.
template <class M, class... Axes>
struct StaticShards;
template <class... MeshAxes, class... Axes>
struct StaticShards<Mesh<MeshAxes...>, Axes...> {
    template <class A>
    static constexpr std::size_t extent = [] {
        std::size_t found = dynamic;
        ((std::is_same_v<A, typename MeshAxes::tag> ? void(found = MeshAxes::extent) : void()), ...);
        return found;
    }();
    static constexpr std::size_t value = [] {
        std::size_t product = 1;
        ((product = product == dynamic || extent<Axes> == dynamic ? dynamic : product * extent<Axes>), ...);
        return product;
    }();
};

constexpr Text division_text(std::string_view name, std::size_t extent, AxisNames const& axes, std::size_t shards) {
    Text out;
    out << "pentad: " << name << " = " << extent << " is not divisible by ";
    for (std::size_t i = 0; i < axes.size(); ++i) out << (i == 0 ? "" : " x ") << axes[i];
    out << " = " << shards << ": change the extent or the mesh";
    return out;
}

template <class D, class M>
struct DimensionOn;
template <class Name, std::size_t Extent, class... Axes, class M>
struct DimensionOn<Dim<Name, Extent, Axes...>, M> {
    static constexpr bool has_axes = (M::template has<Axes> && ...);
    static constexpr std::size_t shards = StaticShards<M, Axes...>::value;
    static constexpr bool divides =
        has_uneven_blocks<Name> || Extent == dynamic || shards == dynamic || Extent % shards == 0;
    static consteval void require() {
        if constexpr (!divides) refuse<division_text(Name::name, Extent, AxisNames(Axes::name...), shards)>();
    }
};

template <class D, std::size_t Width, Boundary Ends, Ghosts State, class M>
struct DimensionOn<Halo<D, Width, Ends, State>, M> : DimensionOn<D, M> {};

template <class S, class M>
inline constexpr bool state_on = false;
template <template <class...> class State, class... Axes, class M>
inline constexpr bool state_on<State<Axes...>, M> = (M::template has<Axes> && ...);

template <class L, class M>
struct LayoutOn;
template <class T, class... D, class... States, class... Axes>
struct LayoutOn<Layout<T, Dims<D...>, States...>, Mesh<Axes...>> {
    using M = Mesh<Axes...>;
    static constexpr bool has_axes = (DimensionOn<D, M>::has_axes && ...) && (state_on<States, M> && ...);
    static constexpr bool divides = (DimensionOn<D, M>::divides && ...);
    static consteval void require() { (DimensionOn<D, M>::require(), ...); }
};

/// A layout belongs to the first of two views of a mesh if this view has all axes of the layout, else to the second.
template <class L, class First, class Second>
struct LayoutOn<L, FoldedMesh<First, Second>>
    : std::conditional_t<LayoutOn<L, First>::has_axes, LayoutOn<L, First>, LayoutOn<L, Second>> {};

} // namespace detail

/// True when layout L fits mesh M as far as the compiler can see; dynamic extents are checked when a tensor is made.
template <class L, class M>
concept FitsOn = detail::LayoutOn<L, M>::has_axes && detail::LayoutOn<L, M>::divides;

/// Compiles only when layout L fits mesh M.
template <class L, class M>
consteval void require_fits_on() {
    if constexpr (!detail::LayoutOn<L, M>::has_axes)
        refuse<Text() << "pentad: the layout names an axis that the mesh does not have: " << layout_text<L>.view()>();
    detail::LayoutOn<L, M>::require();
}

} // namespace pentad
