// What is computed from layouts as types: the dual (the layout of the gradient), the
// axes over which an operation varies, and how a weight is therefore used.
#pragma once

#include <pentad/layout/layout.hpp>

#include <cstddef>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace pentad {

/// A list of axes, as a type.
template <class... Axes>
struct AxisSet {
    static constexpr AxisNames names{Axes::name...};
};

namespace detail {
template <class A, class Set>
inline constexpr bool in_set = false;
template <class A, class... Axes>
inline constexpr bool in_set<A, AxisSet<Axes...>> = (std::is_same_v<A, Axes> || ...);

template <class Set, class... More>
struct Union {
    using type = Set;
};
template <class... Axes, class A, class... More>
struct Union<AxisSet<Axes...>, A, More...>
    : Union<std::conditional_t<in_set<A, AxisSet<Axes...>>, AxisSet<Axes...>, AxisSet<Axes..., A>>, More...> {};

template <class A, class B>
struct UnionOf;
template <class A, class... Axes>
struct UnionOf<A, AxisSet<Axes...>> : Union<A, Axes...> {};

template <class Part, class A>
inline constexpr bool is_part_of = std::is_same_v<Part, A>;
template <class Part, class A>
    requires(!std::is_same_v<Part, A> && requires { typename Part::whole; })
inline constexpr bool is_part_of<Part, A> = is_part_of<typename Part::whole, A>;
template <class Set, class A>
inline constexpr bool names_part_of = false;
template <class... Axes, class A>
inline constexpr bool names_part_of<AxisSet<Axes...>, A> = (is_part_of<Axes, A> || ...);

/// What is left of axis A when `Set` is taken away: nothing when the set names it, the other factors when it names
/// some.
template <class A, class Set>
struct Remaining {
    using type = AxisSet<A>;
};
template <class A, class Set>
    requires(in_set<A, Set>)
struct Remaining<A, Set> {
    using type = AxisSet<>;
};
template <class A, class Set>
    requires(!in_set<A, Set> && names_part_of<Set, A>)
struct Remaining<A, Set> : UnionOf<typename Remaining<outer<A>, Set>::type, typename Remaining<inner<A>, Set>::type> {};

template <class Result, class Set, class... Axes>
struct Minus {
    using type = Result;
};
template <class Result, class Set, class A, class... Axes>
struct Minus<Result, Set, A, Axes...>
    : Minus<typename UnionOf<Result, typename Remaining<A, Set>::type>::type, Set, Axes...> {};

template <class A, class B>
struct MinusOf;
template <class... Axes, class B>
struct MinusOf<AxisSet<Axes...>, B> : Minus<AxisSet<>, B, Axes...> {};

template <class D>
struct DimAxes;
template <class Name, std::size_t N, class... Axes>
struct DimAxes<Dim<Name, N, Axes...>> {
    using type = AxisSet<Axes...>;
};
template <class D, std::size_t Width, Boundary Ends, Ghosts State>
struct DimAxes<Halo<D, Width, Ends, State>> : DimAxes<D> {};
template <class S>
struct StateAxes;
template <template <class...> class State, class... Axes>
struct StateAxes<State<Axes...>> {
    using type = AxisSet<Axes...>;
    template <template <class...> class Other>
    using as = Other<Axes...>;
};

template <class... Sets>
struct UnionAll {
    using type = AxisSet<>;
};
template <class First, class... Rest>
struct UnionAll<First, Rest...> : UnionOf<First, typename UnionAll<Rest...>::type> {};

template <class L>
struct LayoutAxes;
template <class T, class... D, class... States>
struct LayoutAxes<Layout<T, Dims<D...>, States...>> {
    template <template <class...> class State>
    using in_state =
        typename UnionAll<std::conditional_t<std::is_same_v<States, typename StateAxes<States>::template as<State>>,
                                             typename StateAxes<States>::type, AxisSet<>>...>::type;
    using sharded = typename UnionAll<typename DimAxes<D>::type...>::type;
    using varying = typename UnionAll<typename DimAxes<D>::type..., typename StateAxes<States>::type...>::type;
};

template <class S>
struct DualState {
    using type = S;
};
template <class... Axes>
struct DualState<Partial<Axes...>> {
    using type = Replicated<Axes...>;
};
template <class... Axes>
struct DualState<Replicated<Axes...>> {
    using type = Partial<Axes...>;
};
template <class D>
struct DualDim {
    using type = D;
};
template <class D, std::size_t Width, Boundary Ends>
struct DualDim<Halo<D, Width, Ends, Ghosts::filled>> {
    using type = Halo<D, Width, Ends, Ghosts::summands>;
};
template <class D, std::size_t Width, Boundary Ends>
struct DualDim<Halo<D, Width, Ends, Ghosts::summands>> {
    using type = Halo<D, Width, Ends, Ghosts::filled>;
};
template <class L>
struct Dual;
template <class T, class... D, class... States>
struct Dual<Layout<T, Dims<D...>, States...>> {
    using L = Layout<T, Dims<D...>, States...>;
    static_assert(
        L::value.partial_max.empty() && L::value.partial_min.empty() && L::value.partial_log_sum_exp.empty(),
        "pentad: a partial maximum, minimum or log-sum-exp has no dual: reduce it, and let the operation that uses it "
        "state its own derivative");
    using type = Layout<T, Dims<typename DualDim<D>::type...>, typename DualState<States>::type...>;
};
template <class D, Ghosts New>
struct WithGhosts {
    using type = D;
};
template <class D, std::size_t Width, Boundary Ends, Ghosts State, Ghosts New>
struct WithGhosts<Halo<D, Width, Ends, State>, New> {
    using type = Halo<D, Width, Ends, New>;
};
template <class D, std::size_t Width, Boundary Ends, Ghosts State>
struct WithGhosts<Halo<D, Width, Ends, State>, Ghosts::none> {
    using type = D;
};
template <class L, Ghosts New>
struct LayoutWithGhosts;
template <class T, class... D, class... States, Ghosts New>
struct LayoutWithGhosts<Layout<T, Dims<D...>, States...>, New> {
    using type = Layout<T, Dims<typename WithGhosts<D, New>::type...>, States...>;
};

template <class L, class Set>
struct AddReplicated;
template <class T, class D, class... States>
struct AddReplicated<Layout<T, D, States...>, AxisSet<>> {
    using type = Layout<T, D, States...>;
};
template <class T, class D, class... States, class A, class... Axes>
struct AddReplicated<Layout<T, D, States...>, AxisSet<A, Axes...>> {
    using type = Layout<T, D, States..., Replicated<A, Axes...>>;
};

template <class L, class T>
struct WithElement;
template <class Old, class D, class... States, class T>
struct WithElement<Layout<Old, D, States...>, T> {
    using type = Layout<T, D, States...>;
};
template <class L, class NewDim>
struct WithLastDim;
template <class T, class D, class NewDim, class... States>
struct WithLastDim<Layout<T, Dims<D>, States...>, NewDim> {
    using dims = Dims<NewDim>;
    using type = Layout<T, dims, States...>;
};
template <class T, class First, class Second, class... D, class NewDim, class... States>
struct WithLastDim<Layout<T, Dims<First, Second, D...>, States...>, NewDim> {
    template <class Tail>
    struct Prepend;
    template <class... Tail>
    struct Prepend<Dims<Tail...>> {
        using type = Dims<First, Tail...>;
    };
    using dims = typename Prepend<typename WithLastDim<Layout<T, Dims<Second, D...>, States...>, NewDim>::dims>::type;
    using type = Layout<T, dims, States...>;
};
template <class L>
struct LastDimension;
template <class T, class D, class... States>
struct LastDimension<Layout<T, Dims<D>, States...>> {
    using type = Layout<T, Dims<D>>;
};
template <class T, class First, class Second, class... D, class... States>
struct LastDimension<Layout<T, Dims<First, Second, D...>, States...>>
    : LastDimension<Layout<T, Dims<Second, D...>, States...>> {};
template <class L, class Name>
struct DimensionOf;
template <class T, class First, class... D, class... States, class Name>
struct DimensionOf<Layout<T, Dims<First, D...>, States...>, Name>
    : std::conditional_t<std::is_same_v<typename First::tag, Name>, LastDimension<Layout<T, Dims<First>>>,
                         DimensionOf<Layout<T, Dims<D...>>, Name>> {};
template <class D, class A>
struct WithoutAxis {
    using type = D;
};
template <class Name, std::size_t N, class... Before, class A>
    requires(std::is_same_v<Before, A> || ...)
struct WithoutAxis<Dim<Name, N, Before...>, A> {
    template <class Set>
    struct Build;
    template <class... Kept>
    struct Build<AxisSet<Kept...>> {
        using type = Dim<Name, N, Kept...>;
    };
    using type = typename Build<typename MinusOf<AxisSet<Before...>, AxisSet<A>>::type>::type;
};
template <class L, class A, template <class...> class State>
struct Unsharded;
template <class T, class... D, class... States, class A, template <class...> class State>
struct Unsharded<Layout<T, Dims<D...>, States...>, A, State> {
    using type = Layout<T, Dims<typename WithoutAxis<D, A>::type...>, States..., State<A>>;
};
template <class T, class Dimensions, class Set>
struct SummedOver;
template <class T, class Dimensions, class... Axes>
struct SummedOver<T, Dimensions, AxisSet<Axes...>> {
    using type = Layout<T, Dimensions, Partial<Axes...>>;
};
template <class D>
struct WholeDim;
template <class Name, std::size_t N, class... Axes>
struct WholeDim<Dim<Name, N, Axes...>> {
    using type = Dim<Name, N>;
};
template <class L>
struct WholeLayout;
template <class T, class... D, class... States>
struct WholeLayout<Layout<T, Dims<D...>, States...>> {
    using type = Layout<T, Dims<typename WholeDim<D>::type...>>;
};
template <class L>
struct WithoutStates;
template <class T, class D, class... States>
struct WithoutStates<Layout<T, D, States...>> {
    using type = Layout<T, D>;
};
} // namespace detail

template <class A, class B>
using union_t = typename detail::UnionOf<A, B>::type;
template <class A, class B>
using minus_t = typename detail::MinusOf<A, B>::type;

/// The layout of the gradient of a value of layout L: replicated and partial change places, ghost cells that are filled
/// and those that hold summands, too; the rest stays.
template <class L>
using dual_t = typename detail::Dual<L>::type;

/// The layout of the gradient of a value of the given layout, for layouts that are values: of L::value it is
/// dual_t<L>::value. @throws std::invalid_argument where it is a partial maximum, minimum or log-sum-exp
constexpr LayoutValue dual(LayoutValue layout) {
    if (!layout.partial_max.empty() || !layout.partial_min.empty() || !layout.partial_log_sum_exp.empty())
        throw std::invalid_argument("a partial maximum, minimum or log-sum-exp has no gradient: reduce it first");
    std::swap(layout.partial, layout.replicated);
    for (auto& dimension : layout.dimensions)
        if (dimension.ghosts == Ghosts::filled || dimension.ghosts == Ghosts::summands)
            dimension.ghosts = dimension.ghosts == Ghosts::filled ? Ghosts::summands : Ghosts::filled;
    return layout;
}

/// L whose ghost cells are not up to date, and L without them.
template <class L>
using stale_t = typename detail::LayoutWithGhosts<L, Ghosts::stale>::type;
template <class L>
using without_halo_t = typename detail::LayoutWithGhosts<L, Ghosts::none>::type;

/// The axes that shard a dimension of L.
template <class L>
using sharded_axes_t = typename detail::LayoutAxes<L>::sharded;
/// The axes over which L is replicated.
template <class L>
using replicated_axes_t = typename detail::LayoutAxes<L>::template in_state<Replicated>;
/// The axes along which ranks hold different values of L, or use the same value for different work.
template <class L>
using varying_axes_t = typename detail::LayoutAxes<L>::varying;

/// L with elements of type T.
template <class L, class T>
using with_element_t = typename detail::WithElement<L, T>::type;
/// L with its last dimension replaced.
template <class L, class NewDim>
using with_last_dim_t = typename detail::WithLastDim<L, NewDim>::type;
/// The last dimension of L alone, invariant over every axis that does not shard it.
template <class L>
using last_dimension_t = typename detail::LastDimension<L>::type;
/// The dimension Name of L alone, likewise.
template <class L, class Name>
using dimension_t = typename detail::DimensionOf<L, Name>::type;
/// L with axis A no longer sharding a dimension: the ranks along it hold the same value and use it for different work.
template <class L, class A>
using unsharded_t = typename detail::Unsharded<L, A, Replicated>::type;
/// L with axis A no longer sharding a dimension: the ranks along it hold summands of the value.
template <class L, class A>
using summands_t = typename detail::Unsharded<L, A, Partial>::type;
/// L invariant over every axis that does not shard it.
template <class L>
using invariant_t = typename detail::WithoutStates<L>::type;

/// L held whole and invariant by every rank.
template <class L>
using whole_t = typename detail::WholeLayout<L>::type;
/// What a sum over a rank's shard of L is: partial over every axis that shards L, but for those of dimensions that it
/// is not a sum over, which `Dimensions` has.
template <class T, class Dimensions, class L>
using summed_t =
    typename detail::SummedOver<T, Dimensions, minus_t<sharded_axes_t<L>, sharded_axes_t<Layout<T, Dimensions>>>>::type;

/// How a weight stored as `Stored` is used by an operation whose activations have the layouts `Activations...`: it is
/// replicated over every axis along which the operation varies and which does not shard the weight itself. The dual of
/// this layout is the layout of its gradient: this is where gradient synchronisation comes from.
template <class Stored, class... Activations>
using used_t = typename detail::AddReplicated<
    Stored, minus_t<typename detail::UnionAll<varying_axes_t<Activations>...>::type, sharded_axes_t<Stored>>>::type;

/// True when the ranks hold summands of the value rather than the value.
template <class L>
inline constexpr bool is_partial = !L::value.partial.empty() || !L::value.partial_max.empty() ||
                                   !L::value.partial_min.empty() || !L::value.partial_log_sum_exp.empty();

} // namespace pentad
