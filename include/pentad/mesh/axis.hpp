// Axes: empty types with a name, and how many ranks lie along
// them. `outer<A>` and `inner<A>` name the two factors of an axis that is split at run time (kv heads replicated inside
// tp, stages held twice along pp), `outer<inner<A>>` and `inner<inner<A>>` those of the inner one (the grid of tensor
// parallelism in three dimensions), `ends<A>` the first and last coordinate of the outer one (the two holders of a tied
// embedding).
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

namespace pentad {

/// An extent that is known only at run time, as in std::extents.
inline constexpr std::size_t dynamic = std::dynamic_extent;

/// A name of a mesh axis: an empty type with a static `name`. Users may define their own.
template <class A>
concept AxisTag = std::is_empty_v<A> && requires {
    { A::name } -> std::convertible_to<std::string_view>;
};

namespace detail {
/// "outer(tp)": what a part of an axis is called.
template <std::size_t N, class A>
struct PartName {
    std::array<char, N + 1 + A::name.size()> characters{};
    constexpr explicit PartName(char const (&part)[N]) {
        std::size_t at = 0;
        for (std::size_t i = 0; i + 1 < N; ++i) characters[at++] = part[i];
        characters[at++] = '(';
        for (char const c : A::name) characters[at++] = c;
        characters[at] = ')';
    }
};
template <class A>
inline constexpr PartName<6, A> outer_name{"outer"};
template <class A>
inline constexpr PartName<6, A> inner_name{"inner"};
template <class A>
inline constexpr PartName<5, A> ends_name{"ends"};
template <auto const& Name>
inline constexpr std::string_view part_name{Name.characters.data(), Name.characters.size()};

template <class A>
inline constexpr bool may_be_split = true;
template <class A>
    requires requires { typename A::whole; }
inline constexpr bool may_be_split<A> = A::name.starts_with("inner(") && !requires { typename A::whole::whole; };
} // namespace detail

/// The major factor of an axis that is split in two: coordinate<A> / inner extent.
template <AxisTag A>
struct outer {
    static_assert(detail::may_be_split<A>, "pentad: only an axis and its inner factor are split");
    using whole = A;
    static constexpr std::string_view name = detail::part_name<detail::outer_name<A>>;
};
/// The minor factor: coordinate<A> % inner extent.
template <AxisTag A>
struct inner {
    static_assert(detail::may_be_split<A>, "pentad: only an axis and its inner factor are split");
    using whole = A;
    static constexpr std::string_view name = detail::part_name<detail::inner_name<A>>;
};
/// The first and the last coordinate of the outer factor: the holders of an embedding tied between the ends of a
/// pipeline. One rank where these are said to be joined.
template <AxisTag A>
struct ends {
    using whole = A;
    static constexpr std::string_view name = detail::part_name<detail::ends_name<A>>;
};

/// The name of the axis that a tag's name belongs to: "tp" for "tp", "outer(tp)", "inner(inner(tp))" and "ends(tp)".
constexpr std::string_view whole_axis_name(std::string_view name) {
    while (name.ends_with(')')) {
        auto const open = name.find('(');
        name = name.substr(open + 1, name.size() - open - 2);
    }
    return name;
}

/// The factors of an axis: outer, and of inner the outer and the inner one.
inline constexpr std::size_t axis_factors = 3;
/// The factors that a tag's name stands for, as bits: 1 is the outer factor, or its ends; 6 is the inner one.
constexpr unsigned factors_of(std::string_view name) {
    if (name.starts_with("outer(inner(")) return 2;
    if (name.starts_with("inner(inner(")) return 4;
    if (name.starts_with("outer(") || name.starts_with("ends(")) return 1;
    return name.starts_with("inner(") ? 6 : 7;
}
/// Whether two axes have the same name: for what looks for axes all the time, faster than ==, which calls a function.
constexpr bool is_same_axis(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (a[i] != b[i]) return false;
    return true;
}

namespace detail {
/// True when an axis is named twice, or together with a part of itself. Its factors may stand together.
constexpr bool names_an_axis_twice(std::span<std::string_view const> names) {
    for (std::size_t i = 0; i < names.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (whole_axis_name(names[i]) == whole_axis_name(names[j]) &&
                (factors_of(names[i]) & factors_of(names[j])) != 0)
                return true;
    return false;
}
template <class... A>
inline constexpr bool are_distinct = !names_an_axis_twice(std::array<std::string_view, sizeof...(A)>{A::name...});

template <class A>
struct WholeAxis {
    using type = A;
};
template <class A>
    requires requires { typename A::whole; }
struct WholeAxis<A> : WholeAxis<typename A::whole> {};
} // namespace detail

/// The mesh axis that a tag belongs to: A itself, or the axis of which it is a part.
template <class A>
using whole_axis_t = typename detail::WholeAxis<A>::type;

/// Which views of a mesh have an axis (mesh/fold.hpp), as bits: 1, the first, unless its tag says `views`: 2, the
/// second, or 3, both.
template <class A>
inline constexpr unsigned views_of = 1;
template <class A>
    requires requires { whole_axis_t<A>::views; }
inline constexpr unsigned views_of<A> = whole_axis_t<A>::views;

/// One axis of a mesh: its tag and its extent, static or dynamic.
template <AxisTag Tag, std::size_t Extent = dynamic>
struct Axis {
    using tag = Tag;
    static constexpr std::size_t extent = Extent;
    static_assert(Extent > 0, "pentad: the extent of a mesh axis is at least 1");
};

} // namespace pentad
