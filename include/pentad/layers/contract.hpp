// Room: layers. The algebra of a product with a weight, y = x W^T: the layout of y from those of x and W, or the reason
// why the two do not fit. From it come the layout a linear layer gives, and how its weight is used.
#pragma once

#include <pentad/layout/algebra.hpp>

#include <cstddef>
#include <type_traits>

namespace pentad {

namespace detail {

template <class... D>
struct DimList {};

template <std::size_t N, class Head, class Tail>
struct SplitAt;
template <class... Head, class... Tail>
struct SplitAt<0, DimList<Head...>, DimList<Tail...>> {
    using head = DimList<Head...>;
    using tail = DimList<Tail...>;
};
template <std::size_t N, class... Head, class First, class... Tail>
    requires(N > 0)
struct SplitAt<N, DimList<Head...>, DimList<First, Tail...>>
    : SplitAt<N - 1, DimList<Head..., First>, DimList<Tail...>> {};

template <class L>
struct LayoutDims;
template <class T, class... D, class... States>
struct LayoutDims<Layout<T, Dims<D...>, States...>> {
    using type = DimList<D...>;
};

template <class List>
struct DimListAxes;
template <class... D>
struct DimListAxes<DimList<D...>> {
    using type = typename UnionAll<typename DimAxes<D>::type...>::type;
};

/// Same names and same axes, dimension by dimension.
template <class A, class B>
inline constexpr bool same_dims = false;
template <>
inline constexpr bool same_dims<DimList<>, DimList<>> = true;
template <class Name, std::size_t N, std::size_t M, class... Axes, class... RestA, class... RestB>
inline constexpr bool same_dims<DimList<Dim<Name, N, Axes...>, RestA...>, DimList<Dim<Name, M, Axes...>, RestB...>> =
    (N == M || N == dynamic || M == dynamic) && same_dims<DimList<RestA...>, DimList<RestB...>>;

/// Same names, whatever the axes.
template <class A, class B>
inline constexpr bool same_names = false;
template <>
inline constexpr bool same_names<DimList<>, DimList<>> = true;
template <class Name, std::size_t N, std::size_t M, class... A, class... B, class... RestA, class... RestB>
inline constexpr bool same_names<DimList<Dim<Name, N, A...>, RestA...>, DimList<Dim<Name, M, B...>, RestB...>> =
    same_names<DimList<RestA...>, DimList<RestB...>>;

template <class Set, template <class...> class State, class T, class D, class... States>
struct AddState;
template <template <class...> class State, class T, class D, class... States>
struct AddState<AxisSet<>, State, T, D, States...> {
    using type = Layout<T, D, States...>;
};
template <class A, class... Axes, template <class...> class State, class T, class D, class... States>
struct AddState<AxisSet<A, Axes...>, State, T, D, States...> {
    using type = Layout<T, D, States..., State<A, Axes...>>;
};

template <class T, class Rows, class Out, class PartialAxes, class ReplicatedAxes>
struct ProductLayout;
template <class T, class... Rows, class... Out, class PartialAxes, class... Replicates>
struct ProductLayout<T, DimList<Rows...>, DimList<Out...>, PartialAxes, AxisSet<Replicates...>> {
    using type = typename AddState<PartialAxes, Partial, T, Dims<Rows..., Out...>, Replicated<Replicates...>>::type;
};
template <class T, class... Rows, class... Out, class PartialAxes>
struct ProductLayout<T, DimList<Rows...>, DimList<Out...>, PartialAxes, AxisSet<>> {
    using type = typename AddState<PartialAxes, Partial, T, Dims<Rows..., Out...>>::type;
};

/// True when each axis of `Set` is an axis of `Of`, or a factor of one.
template <class Set, class Of>
inline constexpr bool covered = false;
template <class... Axes, class Of>
inline constexpr bool covered<AxisSet<Axes...>, Of> = ((in_set<Axes, Of> || in_set<whole_axis_t<Axes>, Of>) && ...);

/// x [rows..., in...] times W [out..., in...] transposed.
template <class X, class W, std::size_t OutDimensions>
struct Contraction {
    using weight = SplitAt<OutDimensions, DimList<>, typename LayoutDims<W>::type>;
    static constexpr std::size_t in_dimensions = W::rank - OutDimensions;
    static_assert(X::rank > in_dimensions, "pentad: x has no dimensions beside those that the weight takes");
    using input = SplitAt<X::rank - in_dimensions, DimList<>, typename LayoutDims<X>::type>;
    using x_replicated = replicated_axes_t<X>;
    using out_axes = typename DimListAxes<typename weight::head>::type;
    using in_axes = typename DimListAxes<typename weight::tail>::type;

    static constexpr bool elements_match = std::is_same_v<typename X::element, typename W::element>;
    static constexpr bool names_match = same_names<typename input::tail, typename weight::tail>;
    static constexpr bool shards_match = same_dims<typename input::tail, typename weight::tail>;
    static constexpr bool x_is_whole = !is_partial<X>;
    static constexpr bool x_is_replicated = covered<out_axes, x_replicated>;
    static constexpr bool valid = elements_match && names_match && shards_match && x_is_whole && x_is_replicated;

    using type = typename ProductLayout<typename X::element, typename input::head, typename weight::head, in_axes,
                                        minus_t<x_replicated, out_axes>>::type;
};

/// Refuses a product with its sentence; the layouts stand in the compiler's message in their short form.
template <FixedText X, FixedText W, bool Elements, bool Names, bool Shards, bool Whole, bool IsReplicated>
struct Product {
    static_assert(Elements, "pentad: the input and the weight of a linear layer have different elements");
    static_assert(Names, "pentad: the last dimensions of the input are not those that the weight takes");
    static_assert(
        !Names || Shards,
        "pentad: the weight's input dimension is sharded over axes over which the input is not: redistribute the "
        "input to the weight's sharding, or use ColumnParallel");
    static_assert(Whole, "pentad: the input of a linear layer is still partial: redistribute it first");
    static_assert(
        IsReplicated,
        "pentad: the weight's output dimension is sharded over an axis over which the input is not replicated: "
        "redistribute the input to replicated over it, or use RowParallel");
    static constexpr bool checked = true;
};

} // namespace detail

/// True when x of layout X can be multiplied by a weight of layout W whose first `Out` dimensions are the output's.
template <class X, class W, std::size_t Out>
concept Multipliable = detail::Contraction<X, W, Out>::valid;

/// The layout of x W^T. It is partial over the axes that shard the summed dimensions, and stays replicated over those
/// axes of x that the weight does not use.
template <class X, class W, std::size_t Out>
using product_t = typename detail::Contraction<X, W, Out>::type;

/// Compiles only when x of layout X can be multiplied by a weight of layout W.
template <class X, class W, std::size_t Out>
consteval void require_multipliable() {
    using C = detail::Contraction<X, W, Out>;
    if constexpr (!C::valid)
        static_assert(detail::Product<layout_text<X>, layout_text<W>, C::elements_match, C::names_match,
                                      C::shards_match, C::x_is_whole, C::x_is_replicated>::checked);
}

} // namespace pentad
