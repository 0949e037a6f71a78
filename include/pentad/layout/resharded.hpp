// Layouts made from others: an axis named by its factors, an axis that shards another dimension.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/layout.hpp>

#include <cstddef>
#include <type_traits>

namespace pentad {

namespace detail {

template <class D, class... Axes>
struct WithAxes;
template <class Name, std::size_t N, class... Old, class... Axes>
struct WithAxes<Dim<Name, N, Old...>, AxisSet<Axes...>> {
    using type = Dim<Name, N, Axes...>;
};

template <class... Sets>
struct Joined {
    using type = AxisSet<>;
};
template <class... First, class... Rest>
struct Joined<AxisSet<First...>, Rest...> {
    template <class Set>
    struct Append;
    template <class... More>
    struct Append<AxisSet<More...>> {
        using type = AxisSet<First..., More...>;
    };
    using type = typename Append<typename Joined<Rest...>::type>::type;
};

/// The axes of dimension D with A replaced by others.
template <class D, class A, class... By>
struct Replaced;
template <class Name, std::size_t N, class... Old, class A, class... By>
struct Replaced<Dim<Name, N, Old...>, A, By...> {
    using type = typename WithAxes<
        Dim<Name, N, Old...>,
        typename Joined<std::conditional_t<std::is_same_v<Old, A>, AxisSet<By...>, AxisSet<Old>>...>::type>::type;
};
/// D with A as its most minor axis.
template <class D, class A>
struct Sharded;
template <class Name, std::size_t N, class... Old, class A>
struct Sharded<Dim<Name, N, Old...>, A> {
    using type = Dim<Name, N, Old..., A>;
};

template <class L, class A, class... By>
struct Factored;
template <class T, class... D, class... States, class A, class... By>
struct Factored<Layout<T, Dims<D...>, States...>, A, By...> {
    using type = Layout<T, Dims<typename Replaced<D, A, By...>::type...>, States...>;
};

template <class L, class A, class Name>
struct Resharded;
template <class T, class... D, class... States, class A, class Name>
struct Resharded<Layout<T, Dims<D...>, States...>, A, Name> {
    template <class Old>
    using dim =
        typename std::conditional_t<std::is_same_v<typename Old::tag, Name>, Sharded<Old, A>, Replaced<Old, A>>::type;
    using type = Layout<T, Dims<dim<D>...>, States...>;
};

} // namespace detail

/// L with axis A, where it shards a dimension, named by its factors, major to minor.
template <class L, class A, class... Factors>
using factored_t = typename detail::Factored<L, A, Factors...>::type;
/// L with axis A sharding dimension Name, as its most minor axis, in place of the one that it shards.
template <class L, class A, class Name>
using resharded_t = typename detail::Resharded<L, A, Name>::type;

} // namespace pentad
