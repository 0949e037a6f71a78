// The algebra of a product with a weight, y = x W^T: the layout of y from those of x and W, or the reason
// why the two do not fit. From it come the output layout of a linear layer, and how its weight is used.
#pragma once

#include <pentad/layout/algebra.hpp>

#include <cstddef>
#include <string_view>
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
    static constexpr bool x_has_rows = X::rank > in_dimensions;
    static constexpr std::size_t rows = x_has_rows ? X::rank - in_dimensions : 0;
    using input = SplitAt<rows, DimList<>, typename LayoutDims<X>::type>;
    using x_replicated = replicated_axes_t<X>;
    using out_axes = typename DimListAxes<typename weight::head>::type;
    using in_axes = typename DimListAxes<typename weight::tail>::type;

    /// True when `same` holds for each summed dimension of x and that of W.
    static constexpr bool summed(bool (*same)(DimensionValue const& x, DimensionValue const& w)) {
        for (std::size_t d = 0; x_has_rows && d < in_dimensions; ++d)
            if (!same(X::value.dimensions[rows + d], W::value.dimensions[OutDimensions + d])) return false;
        return x_has_rows;
    }
    static constexpr bool elements_match = std::is_same_v<typename X::element, typename W::element>;
    static constexpr bool names_match = summed([](auto const& x, auto const& w) { return x.name == w.name; });
    static constexpr bool extents_match = summed([](auto const& x, auto const& w) {
        return x.extent == w.extent || x.extent == dynamic || w.extent == dynamic;
    });
    static constexpr bool shards_match = summed([](auto const& x, auto const& w) { return x.axes == w.axes; });
    static constexpr bool x_is_whole = !is_partial<X>;
    static constexpr bool x_is_replicated = covered<out_axes, x_replicated>;
    /// Why there is no such product; empty when there is one.
    static consteval std::string_view refusal() {
        if (!x_has_rows) return "pentad: the input has no dimensions beside those that the weight takes";
        if (!elements_match) return "pentad: the input and the weight of a linear layer have different elements";
        if (!names_match) return "pentad: the last dimensions of the input are not those that the weight takes";
        if (!extents_match) return "pentad: the input and the weight give a summed dimension two different extents";
        if (!shards_match)
            return "pentad: the input dimension of the weight is sharded over axes over which the input is not: "
                   "redistribute the input to the sharding of the weight, or use ColumnParallel";
        if (!x_is_whole) return "pentad: the input of a linear layer is still partial: redistribute it first";
        if (!x_is_replicated)
            return "pentad: the output dimension of the weight is sharded over an axis over which the input is not "
                   "replicated: redistribute the input to replicated over it, or use RowParallel";
        return "";
    }

    using type = typename ProductLayout<typename X::element, typename input::head, typename weight::head, in_axes,
                                        minus_t<x_replicated, out_axes>>::type;
};

} // namespace detail

/// True when x of layout X can be multiplied by a weight of layout W whose first `Out` dimensions are the output's.
template <class X, class W, std::size_t Out>
concept Multipliable = detail::Contraction<X, W, Out>::refusal().empty();

/// The layout of x W^T. It is partial over the axes that shard the summed dimensions, and stays replicated over those
/// axes of x that the weight does not use.
template <class X, class W, std::size_t Out>
using product_t = typename detail::Contraction<X, W, Out>::type;

/// Compiles only when x of layout X can be multiplied by a weight of layout W.
template <class X, class W, std::size_t Out>
consteval void require_multipliable() {
    if constexpr (!Multipliable<X, W, Out>)
        refuse<Text() << detail::Contraction<X, W, Out>::refusal() << ": " << layout_text<X>.view() << " times "
                      << layout_text<W>.view()>();
}

} // namespace pentad
