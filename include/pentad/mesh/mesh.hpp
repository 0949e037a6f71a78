// A mesh is a typed product of named axes; its value holds the
// extents, the order of the axes in rank space and the run-time splits, and maps coordinates to ranks and to groups.
#pragma once

#include <pentad/mesh/axis.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pentad {

/// What a mesh is at run time, without its type: names and extents of the axes in the order of the mesh type, the
/// stride of each in rank space, the extent of its inner factor (1: not split) and of the inner factor of that, and
/// whether its ends are one.
struct MeshAxisValue {
    std::string_view name;
    int extent = 1;
    int stride = 1;
    int inner = 1;
    int innermost = 1;
    bool is_joined = false;
    int major_extent = 1; ///< of an axis of two pieces: of the major one; `stride` is that of the other
    int major_stride = 1;
    unsigned views = 1; ///< that have the axis, as bits: the first, the second (mesh/fold.hpp)

    friend constexpr bool operator==(MeshAxisValue const&, MeshAxisValue const&) = default;
};

/// The ranks along an axis or a part of it: how many, how far apart, and where a rank stands among them.
struct StridedAxis {
    int extent = 1;       ///< number of ranks
    int stride = 1;       ///< from one to the next, in rank space
    int base = 1;         ///< stride of the whole axis
    int modulus = 1;      ///< what the coordinate along the whole axis is taken by
    int step = 1;         ///< from one to the next, in coordinates along the whole axis
    int major_extent = 1; ///< where they are of two pieces: of the major one
    int major_stride = 1;

    [[nodiscard]] constexpr int coordinate(int rank) const {
        int const minor = rank / base % modulus / step;
        return major_extent == 1 ? minor : rank / major_stride % major_extent * minor_extent() + minor;
    }
    /// The rank with another coordinate along the axis.
    [[nodiscard]] constexpr int moved(int rank, int to) const {
        int const n = minor_extent(), from = coordinate(rank);
        return rank + (to % n - from % n) * stride + (to / n - from / n) * major_stride;
    }

  private:
    [[nodiscard]] constexpr int minor_extent() const { return extent / major_extent; }
};

namespace detail {

/// The ranks along a whole axis, and along the factors that it has when it is split by n.
constexpr StridedAxis whole_axis(MeshAxisValue const& a) {
    return {a.extent, a.stride, a.stride, a.extent / a.major_extent, 1, a.major_extent, a.major_stride};
}
constexpr StridedAxis inner_factor(MeshAxisValue const& a, int n) {
    int const minor = a.extent / a.major_extent;
    if (n <= minor) return {n, a.stride, a.stride, n, 1};
    return {n, a.stride, a.stride, minor, 1, n / minor, a.major_stride};
}
constexpr StridedAxis outer_factor(MeshAxisValue const& a, int n) {
    int const minor = a.extent / a.major_extent;
    if (n < minor) return {a.extent / n, a.stride * n, a.stride, minor, n, a.major_extent, a.major_stride};
    if (a.major_extent == 1) return {1, a.stride, a.stride, a.extent, a.extent};
    return {a.extent / n, a.major_stride * (n / minor), a.major_stride, a.major_extent, n / minor};
}
/// Whether it can be split so that either factor has a piece of each piece of the axis, or none.
constexpr bool can_split(MeshAxisValue const& a, int n) {
    int const minor = a.extent / a.major_extent;
    return n >= 1 && a.extent % n == 0 && (minor % n == 0 || n % minor == 0);
}
/// Splits an axis, or its inner factor, as `name` says.
constexpr void split(MeshAxisValue& axis, std::string_view name, int n) {
    bool const is_whole = name == axis.name;
    int const extent = is_whole ? axis.extent : axis.inner;
    bool const can = is_whole ? can_split(axis, n) : n >= 1 && extent % n == 0 && axis.major_extent == 1;
    if (!can)
        throw std::invalid_argument("mesh axis " + std::string(name) + " of extent " + std::to_string(extent) +
                                    " cannot be split by " + std::to_string(n));
    if (is_whole) axis.inner = n;
    axis.innermost = is_whole ? 1 : n;
}

} // namespace detail

/// Finds an axis, or a part of it, by the name of its tag. @throws std::invalid_argument when the mesh has none.
constexpr StridedAxis find_axis(std::span<MeshAxisValue const> axes, std::string_view name) {
    auto const whole = whole_axis_name(name);
    for (auto const& axis : axes) {
        if (!is_same_axis(axis.name, whole)) continue;
        if (name.size() == whole.size()) return detail::whole_axis(axis);
        auto const factors = factors_of(name);
        if (factors == 4) return detail::inner_factor(axis, axis.innermost);
        if (factors == 6 || (factors == 2 && axis.innermost == 1)) return detail::inner_factor(axis, axis.inner);
        if (factors == 2)
            return {axis.inner / axis.innermost, axis.stride * axis.innermost, axis.stride, axis.inner, axis.innermost};
        if (name.starts_with("outer")) return detail::outer_factor(axis, axis.inner);
        auto const outer = detail::outer_factor(axis, axis.inner); // ends
        int const last = outer.extent - 1;
        if (axis.is_joined || last == 0) return {1, axis.stride, axis.stride, axis.extent, axis.extent};
        return {2, outer.stride * last, outer.base, outer.modulus, outer.step * last};
    }
    throw std::invalid_argument("the mesh has no axis named " + std::string(name));
}

/// The number of ranks of a mesh.
constexpr int rank_count(std::span<MeshAxisValue const> axes) {
    int ranks = 1;
    for (auto const& axis : axes)
        if ((axis.views & 1U) != 0) ranks *= axis.extent;
    return ranks;
}

/// Whether each rank is at the same place along both axes: groups of ranks that these tell apart are the same then.
constexpr bool are_aligned(std::span<MeshAxisValue const> axes, std::string_view a, std::string_view b) {
    auto const first = find_axis(axes, a), second = find_axis(axes, b);
    if (first.extent != second.extent) return false;
    for (int rank = 0; rank < rank_count(axes); ++rank)
        if (first.coordinate(rank) != second.coordinate(rank)) return false;
    return true;
}

/// A mesh, or a mesh with a second view of its ranks (mesh/fold.hpp).
template <class M>
concept MeshOfRanks = requires(M const& mesh) {
    { mesh.axes()[0] } -> std::convertible_to<MeshAxisValue>;
    { mesh.size() } -> std::convertible_to<int>;
};

template <class... Axes>
class Mesh;

namespace detail {
/// A mesh of the axes but for B, with which A grows.
template <class Result, class A, class B, class... Axes>
struct Without {
    using type = Result;
};
template <class... Kept, class A, class B, class First, class... Rest>
struct Without<Mesh<Kept...>, A, B, First, Rest...> : Without<Mesh<Kept..., First>, A, B, Rest...> {};
template <class... Kept, class A, class B, std::size_t N, class... Rest>
struct Without<Mesh<Kept...>, A, B, Axis<B, N>, Rest...> : Without<Mesh<Kept...>, A, B, Rest...> {};
template <class... Kept, class A, class B, std::size_t N, class... Rest>
struct Without<Mesh<Kept...>, A, B, Axis<A, N>, Rest...> : Without<Mesh<Kept..., Axis<A>>, A, B, Rest...> {};
} // namespace detail

/// A product of named axes. `Mesh<Axis<dp>, Axis<tp, 4>> mesh{2};` gives the dynamic extents in the order of the type.
/// Rank order is row-major, the first axis outermost, unless `ordered` says otherwise.
/// @throws std::invalid_argument from every constructor-like function, naming the axis and the numbers.
template <class... Axes>
class Mesh {
  public:
    static constexpr std::size_t rank = sizeof...(Axes);
    static_assert(rank > 0, "pentad: a mesh has at least one axis");
    static_assert(detail::are_distinct<typename Axes::tag...>, "pentad: a mesh names each axis once");

    /// True when A, or the axis that A is a factor of, is an axis of this mesh.
    template <class A>
    static constexpr bool has = (std::is_same_v<whole_axis_t<A>, typename Axes::tag> || ...);

    /// Gives the dynamic extents, in the order of the axes in the type.
    template <std::convertible_to<int>... Extents>
    constexpr explicit Mesh(Extents... dynamic_extents) {
        static_assert(sizeof...(Extents) == ((Axes::extent == dynamic ? 1u : 0u) + ... + 0u),
                      "pentad: a mesh takes one number for each axis whose extent is dynamic");
        std::array<int, sizeof...(Extents) + 1> const given{static_cast<int>(dynamic_extents)..., 0};
        std::size_t next = 0, at = 0;
        ((axes_[at].name = Axes::tag::name,
          axes_[at].extent = Axes::extent == dynamic ? given[next++] : static_cast<int>(Axes::extent), ++at),
         ...);
        for (auto const& axis : axes_)
            if (axis.extent < 1)
                throw std::invalid_argument("mesh axis " + std::string(axis.name) + " has extent " +
                                            std::to_string(axis.extent) + ": it must be at least 1");
        std::array<std::size_t, rank> order{};
        for (std::size_t i = 0; i < rank; ++i) order[i] = i;
        lay_out(order);
    }

    /// The mesh with another order of its axes in rank space, outermost first: a permutation of their names.
    [[nodiscard]] constexpr Mesh ordered(std::array<std::string_view, rank> const& outermost_first) const {
        std::array<std::size_t, rank> order{};
        for (std::size_t i = 0; i < rank; ++i) {
            order[i] = find(outermost_first[i]);
            for (std::size_t j = 0; j < i; ++j)
                if (order[j] == order[i])
                    throw std::invalid_argument("mesh axis " + std::string(outermost_first[i]) + " is given twice");
        }
        Mesh mesh = *this;
        mesh.lay_out(order);
        return mesh;
    }
    template <AxisTag... OutermostFirst>
    [[nodiscard]] constexpr Mesh ordered() const {
        static_assert(sizeof...(OutermostFirst) == rank && detail::are_distinct<OutermostFirst...>,
                      "pentad: an order names every axis of the mesh once");
        return ordered(std::array<std::string_view, rank>{OutermostFirst::name...});
    }

    /// The mesh with axis A, or the inner factor of an axis, split into outer<A> x inner<A>, of which the inner
    /// one has the given extent.
    template <AxisTag A>
    [[nodiscard]] constexpr Mesh split(int inner_extent) const {
        static_assert(has<A>, "pentad: this mesh has no such axis");
        static_assert(detail::may_be_split<A>, "pentad: only an axis and its inner factor are split");
        Mesh mesh = *this;
        detail::split(mesh.axes_[index<A>], A::name, inner_extent);
        return mesh;
    }

    /// The mesh of the ranks where axis B is part of A, as its minor factor, without B. Neither is split, and the order
    /// in rank space is what it was, so that the ranks along A may lie in two pieces.
    template <AxisTag A, AxisTag B>
    [[nodiscard]] constexpr auto merged() const {
        static_assert(has<A> && has<B> && !std::is_same_v<A, B>, "pentad: two axes of the mesh are merged");
        using Result = typename detail::Without<Mesh<>, A, B, Axes...>::type;
        auto const &major = axes_[index<A>], &minor = axes_[index<B>];
        std::array<MeshAxisValue, rank - 1> axes{};
        for (std::size_t i = 0, to = 0; i < rank; ++i)
            if (i != index<B>) axes[to++] = axes_[i];
        auto& axis = axes[index<A> - (index<B> < index<A> ? 1 : 0)];
        axis.extent = major.extent * minor.extent;
        bool const follows = major.stride == minor.stride * minor.extent;
        if (minor.extent > 1) axis.stride = minor.stride;
        if (minor.extent > 1 && major.extent > 1 && !follows) {
            axis.major_extent = major.extent;
            axis.major_stride = major.stride;
        }
        return Result(axes);
    }

    /// The mesh where what the ends of axis A share lies on one rank: ends<A> has extent 1.
    template <AxisTag A>
    [[nodiscard]] constexpr Mesh joined() const {
        static_assert(has<A>, "pentad: this mesh has no such axis");
        Mesh mesh = *this;
        mesh.axes_[index<A>].is_joined = true;
        return mesh;
    }

    /// Number of ranks.
    [[nodiscard]] constexpr int size() const {
        int product = 1;
        for (auto const& axis : axes_) product *= axis.extent;
        return product;
    }
    [[nodiscard]] constexpr std::array<MeshAxisValue, rank> const& axes() const { return axes_; }

    /// Number of ranks along A (or along a factor of it).
    template <AxisTag A>
    [[nodiscard]] constexpr int extent() const {
        return strided<A>().extent;
    }
    /// Where `rank` stands along A (or along a factor of it).
    template <AxisTag A>
    [[nodiscard]] constexpr int coordinate(int rank_number) const {
        return strided<A>().coordinate(rank_number);
    }
    /// The rank at the given coordinates, one for each axis in the order of the type.
    template <std::convertible_to<int>... Coordinates>
    [[nodiscard]] constexpr int rank_at(Coordinates... coordinates) const {
        static_assert(sizeof...(Coordinates) == rank, "pentad: one coordinate for each axis of the mesh");
        int result = 0;
        std::size_t at = 0;
        ((result = detail::whole_axis(axes_[at++]).moved(result, static_cast<int>(coordinates))), ...);
        return result;
    }

    /// Number of ranks in a group along the given axes.
    template <AxisTag... A>
    [[nodiscard]] constexpr int group_size() const {
        int product = 1;
        for (auto const& axis : along<A...>()) product *= axis.extent;
        return product;
    }
    /// Where `rank` stands in its group along A...: major to minor in the order given.
    template <AxisTag... A>
    [[nodiscard]] constexpr int group_index([[maybe_unused]] int rank_number) const {
        int index_in_group = 0;
        for (auto const& axis : along<A...>())
            index_in_group = index_in_group * axis.extent + axis.coordinate(rank_number);
        return index_in_group;
    }
    /// The rank that stands at `member` in the group of `rank` along A...
    template <AxisTag... A>
    [[nodiscard]] constexpr int group_member(int rank_number, int member) const {
        auto const axes = along<A...>();
        for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
            rank_number = axis->moved(rank_number, member % axis->extent);
            member /= axis->extent;
        }
        return rank_number;
    }
    /// The ranks that differ from `rank` only along the given axes, major to minor in the order given.
    template <AxisTag... A>
    [[nodiscard]] constexpr std::vector<int> group(int rank_number) const {
        std::vector<int> members(static_cast<std::size_t>(group_size<A...>()));
        for (std::size_t i = 0; i < members.size(); ++i)
            members[i] = group_member<A...>(rank_number, static_cast<int>(i));
        return members;
    }
    /// Every group along the given axes, by first rank.
    template <AxisTag... A>
    [[nodiscard]] constexpr std::vector<std::vector<int>> groups() const {
        std::vector<std::vector<int>> all;
        for (int r = 0; r < size(); ++r)
            if (group_index<A...>(r) == 0) all.push_back(group<A...>(r));
        return all;
    }
    /// The blocks of ranks that share one coordinate along each of the given axes: groups over all the other axes,
    /// sorted.
    template <AxisTag... A>
    [[nodiscard]] constexpr std::vector<std::vector<int>> blocks() const {
        std::vector<std::vector<int>> all(static_cast<std::size_t>(group_size<A...>()));
        for (int r = 0; r < size(); ++r) all[static_cast<std::size_t>(group_index<A...>(r))].push_back(r);
        std::sort(all.begin(), all.end());
        return all;
    }
    /// The rank `steps` further along the ring of axis A (negative: back).
    template <AxisTag A>
    [[nodiscard]] constexpr int neighbour(int rank_number, int steps) const {
        int const n = extent<A>();
        return group_member<A>(rank_number, ((coordinate<A>(rank_number) + steps) % n + n) % n);
    }

    friend constexpr bool operator==(Mesh const& a, Mesh const& b) { return a.axes_ == b.axes_; }

  private:
    template <class A>
    static constexpr std::size_t index = [] {
        std::size_t at = 0, found = rank;
        ((std::is_same_v<whole_axis_t<A>, typename Axes::tag> ? void(found = at++) : void(++at)), ...);
        return found;
    }();

    template <class A>
    [[nodiscard]] constexpr StridedAxis strided() const {
        static_assert(has<A>, "pentad: this mesh has no such axis");
        return find_axis(axes_, A::name);
    }
    template <class... A>
    [[nodiscard]] constexpr std::array<StridedAxis, sizeof...(A)> along() const {
        static_assert(detail::are_distinct<A...>, "pentad: a group names each axis once");
        return {strided<A>()...};
    }
    [[nodiscard]] constexpr std::size_t find(std::string_view name) const {
        for (std::size_t i = 0; i < rank; ++i)
            if (axes_[i].name == name) return i;
        throw std::invalid_argument("mesh has no axis named " + std::string(name));
    }
    template <class...>
    friend class Mesh;
    constexpr explicit Mesh(std::array<MeshAxisValue, rank> const& axes) : axes_(axes) {}

    constexpr void lay_out(std::array<std::size_t, rank> const& outermost_first) {
        int stride = 1;
        for (std::size_t i = rank; i-- > 0;) {
            axes_[outermost_first[i]].major_extent = axes_[outermost_first[i]].major_stride = 1;
            axes_[outermost_first[i]].stride = stride;
            stride *= axes_[outermost_first[i]].extent;
        }
    }

    std::array<MeshAxisValue, rank> axes_{};
};

} // namespace pentad
