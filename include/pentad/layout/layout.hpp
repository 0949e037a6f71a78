// A layout says how a tensor lies on a mesh: for each dimension the axes that shard it,
// and what holds over every other axis. The type is what the compiler checks; its value is what plans are computed
// from.
#pragma once

#include <pentad/layout/dimension.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/layout/text.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pentad {

/// The value is the sum of what the ranks along these axes hold.
template <class... Axes>
struct Partial {};
/// The value is the largest of what the ranks along these axes hold.
template <class... Axes>
struct PartialMax {};
/// The value is the smallest of what the ranks along these axes hold.
template <class... Axes>
struct PartialMin {};
/// The value is log(sum(exp(.))) of what the ranks along these axes hold.
template <class... Axes>
struct PartialLogSumExp {};
/// Every rank along these axes holds the same value and uses it for different work: its gradient is partial.
template <class... Axes>
struct Replicated {};
// Over every axis that a layout does not name it is invariant: every rank holds the same bits and does the same work.

/// The dimensions of a layout, outermost first.
template <class... Dimensions>
struct Dims {};

/// How a tensor of elements T lies on a mesh, e.g.
/// `Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<seq, 1024, cp>, Dim<hidden, 512>>, Partial<tp>>`,
/// in the short form `f32[batch@dp:?, seq@cp:1024, hidden:512]{tp: partial}`.
template <class T, class Dimensions, class... States>
struct Layout;

/// What holds along one axis.
enum class Placement : std::uint8_t {
    invariant,
    replicated,
    partial,
    partial_max,
    partial_min,
    partial_log_sum_exp,
    shard
};

inline constexpr std::array<std::string_view, 7> placement_names{
    "invariant", "replicated", "partial", "partial max", "partial min", "partial log-sum-exp", "shard"};

/// Whether it is a reduction other than a sum.
constexpr bool is_other_reduction(Placement placement) {
    return placement == Placement::partial_max || placement == Placement::partial_min ||
           placement == Placement::partial_log_sum_exp;
}

inline constexpr std::size_t max_dimensions = 6;
inline constexpr std::size_t max_axes = 8;

/// A short list of axes' names.
struct AxisNames {
    std::array<std::string_view, max_axes> names{};
    std::size_t count = 0;

    constexpr AxisNames() = default;
    template <std::convertible_to<std::string_view>... Names>
    constexpr explicit AxisNames(Names... given) : names{std::string_view(given)...}, count(sizeof...(Names)) {}

    constexpr void push(std::string_view name) { names[count++] = name; }
    [[nodiscard]] constexpr bool contains(std::string_view name) const {
        for (std::size_t i = 0; i < count; ++i)
            if (names[i] == name) return true;
        return false;
    }
    [[nodiscard]] constexpr std::size_t size() const { return count; }
    [[nodiscard]] constexpr bool empty() const { return count == 0; }
    [[nodiscard]] constexpr std::string_view operator[](std::size_t i) const { return names[i]; }
    [[nodiscard]] constexpr std::string_view back() const { return names[count - 1]; }
    [[nodiscard]] constexpr auto begin() const { return names.begin(); }
    [[nodiscard]] constexpr auto end() const { return names.begin() + static_cast<std::ptrdiff_t>(count); }
    friend constexpr bool operator==(AxisNames const& a, AxisNames const& b) {
        return a.count == b.count && std::equal(a.begin(), a.end(), b.begin());
    }
};

/// One dimension of a layout, as a value.
struct DimensionValue {
    std::string_view name;
    std::size_t extent = dynamic;
    AxisNames axes;
    bool is_uneven = false; ///< its blocks may differ by one
    Ghosts ghosts = Ghosts::none;
    Boundary boundary = Boundary::open;
    std::size_t width = 0; ///< ghost cells on each side of a shard

    friend constexpr bool operator==(DimensionValue const&, DimensionValue const&) = default;
};

/// A layout as a value: what plans, costs and texts are computed from.
struct LayoutValue {
    std::string_view element;
    std::size_t element_size = 0;
    std::size_t rank = 0;
    std::array<DimensionValue, max_dimensions> dimensions{};
    AxisNames replicated, partial, partial_max, partial_min, partial_log_sum_exp;

    [[nodiscard]] constexpr Placement placement(std::string_view axis) const {
        if (dimension_of(axis) < rank) return Placement::shard;
        if (replicated.contains(axis)) return Placement::replicated;
        if (partial.contains(axis)) return Placement::partial;
        if (partial_max.contains(axis)) return Placement::partial_max;
        if (partial_min.contains(axis)) return Placement::partial_min;
        if (partial_log_sum_exp.contains(axis)) return Placement::partial_log_sum_exp;
        return Placement::invariant;
    }
    /// The dimension that the axis shards, or `rank`.
    [[nodiscard]] constexpr std::size_t dimension_of(std::string_view axis) const {
        for (std::size_t d = 0; d < rank; ++d)
            if (dimensions[d].axes.contains(axis)) return d;
        return rank;
    }
    /// Whether blocks of a dimension may differ by one.
    [[nodiscard]] constexpr bool is_uneven() const {
        for (std::size_t d = 0; d < rank; ++d)
            if (dimensions[d].is_uneven) return true;
        return false;
    }
    /// Whether shards of a dimension have ghost cells.
    [[nodiscard]] constexpr bool has_halo() const {
        for (std::size_t d = 0; d < rank; ++d)
            if (dimensions[d].ghosts != Ghosts::none) return true;
        return false;
    }
    /// Every axis the layout names.
    [[nodiscard]] constexpr AxisNames axes() const {
        AxisNames all;
        for (std::size_t d = 0; d < rank; ++d)
            for (auto const axis : dimensions[d].axes) all.push(axis);
        for (auto const* list : {&replicated, &partial, &partial_max, &partial_min, &partial_log_sum_exp})
            for (auto const axis : *list) all.push(axis);
        return all;
    }
    friend constexpr bool operator==(LayoutValue const&, LayoutValue const&) = default;
};

/// Writes a layout in the short form; `extents` replaces the dynamic ones when given. A ~ stands before the extent of a
/// dimension of which blocks may be uneven.
constexpr void write(Text& out, LayoutValue const& layout, std::size_t const* extents = nullptr) {
    auto const list = [&out](AxisNames const& axes) {
        for (std::size_t i = 0; i < axes.size(); ++i) out << (i == 0 ? "" : ".") << axes[i];
    };
    out << layout.element << "[";
    for (std::size_t d = 0; d < layout.rank; ++d) {
        auto const& dimension = layout.dimensions[d];
        out << (d == 0 ? "" : ", ") << dimension.name;
        if (!dimension.axes.empty()) {
            out << "@";
            list(dimension.axes);
        }
        out << (dimension.is_uneven ? ":~" : ":");
        std::size_t const extent = extents != nullptr ? extents[d] : dimension.extent;
        if (extent == dynamic)
            out << "?";
        else
            out << extent;
        if (dimension.ghosts == Ghosts::none) continue;
        constexpr std::array<std::string_view, 4> states{"", "stale ", "", "summed "};
        out << " (" << states[static_cast<std::size_t>(dimension.ghosts)]
            << (dimension.boundary == Boundary::periodic ? "periodic " : "") << "halo " << dimension.width << ")";
    }
    out << "]";
    bool first = true;
    auto const state = [&](AxisNames const& axes, Placement placement) {
        if (axes.empty()) return;
        out << (first ? "{" : ", ");
        first = false;
        list(axes);
        out << ": " << placement_names[static_cast<std::size_t>(placement)];
    };
    state(layout.partial, Placement::partial);
    state(layout.partial_max, Placement::partial_max);
    state(layout.partial_min, Placement::partial_min);
    state(layout.partial_log_sum_exp, Placement::partial_log_sum_exp);
    state(layout.replicated, Placement::replicated);
    if (!first) out << "}";
}

namespace detail {
template <class Name, std::size_t Extent, class... Axes>
constexpr void add(LayoutValue& layout, Dim<Name, Extent, Axes...>) {
    layout.dimensions[layout.rank++] = {Name::name, Extent, AxisNames(Axes::name...), has_uneven_blocks<Name>};
}
template <class D, std::size_t Width, Boundary Ends, Ghosts State>
constexpr void add(LayoutValue& layout, Halo<D, Width, Ends, State>) {
    add(layout, D{});
    auto& dimension = layout.dimensions[layout.rank - 1];
    dimension.ghosts = State;
    dimension.boundary = Ends;
    dimension.width = Width;
}
template <class... Axes>
constexpr void add(AxisNames& list) {
    (list.push(Axes::name), ...);
}
template <class... Axes>
constexpr void add(LayoutValue& layout, Partial<Axes...>) {
    add<Axes...>(layout.partial);
}
template <class... Axes>
constexpr void add(LayoutValue& layout, PartialMax<Axes...>) {
    add<Axes...>(layout.partial_max);
}
template <class... Axes>
constexpr void add(LayoutValue& layout, PartialMin<Axes...>) {
    add<Axes...>(layout.partial_min);
}
template <class... Axes>
constexpr void add(LayoutValue& layout, PartialLogSumExp<Axes...>) {
    add<Axes...>(layout.partial_log_sum_exp);
}
template <class... Axes>
constexpr void add(LayoutValue& layout, Replicated<Axes...>) {
    add<Axes...>(layout.replicated);
}

/// Whether a dimension has a name, and whether each axis of a dimension or a state has one.
template <class D>
inline constexpr bool has_name = false;
template <class Name, std::size_t Extent, class... Axes>
inline constexpr bool has_name<Dim<Name, Extent, Axes...>> = DimensionTag<Name>;
template <class D, std::size_t Width, Boundary Ends, Ghosts State>
inline constexpr bool has_name<Halo<D, Width, Ends, State>> = has_name<D>;
template <class Part>
inline constexpr bool names_axes = false;
template <class Name, std::size_t Extent, class... Axes>
inline constexpr bool names_axes<Dim<Name, Extent, Axes...>> = (AxisTag<Axes> && ...);
template <class D, std::size_t Width, Boundary Ends, Ghosts State>
inline constexpr bool names_axes<Halo<D, Width, Ends, State>> = names_axes<D>;
template <template <class...> class State, class... Axes>
inline constexpr bool names_axes<State<Axes...>> = (AxisTag<Axes> && ...);

template <class D>
inline constexpr unsigned views_of_part = 3;
template <class Name, std::size_t Extent, class... Axes>
inline constexpr unsigned views_of_part<Dim<Name, Extent, Axes...>> = (views_of<Axes> & ... & 3U);
template <class D, std::size_t Width, Boundary Ends, Ghosts State>
inline constexpr unsigned views_of_part<Halo<D, Width, Ends, State>> = views_of_part<D>;
template <template <class...> class State, class... Axes>
inline constexpr unsigned views_of_part<State<Axes...>> = (views_of<Axes> & ... & 3U);

constexpr bool names_an_axis_twice(LayoutValue const& layout) { return names_an_axis_twice(layout.axes()); }
constexpr bool has_summands(LayoutValue const& layout) {
    return !layout.partial.empty() ||
           std::any_of(layout.dimensions.begin(), layout.dimensions.begin() + static_cast<std::ptrdiff_t>(layout.rank),
                       [](DimensionValue const& dimension) { return dimension.ghosts == Ghosts::summands; });
}
constexpr bool names_a_dimension_twice(LayoutValue const& layout) {
    for (std::size_t d = 0; d < layout.rank; ++d)
        for (std::size_t e = 0; e < d; ++e)
            if (layout.dimensions[d].name == layout.dimensions[e].name) return true;
    return false;
}
} // namespace detail

template <class T, class... D, class... States>
struct Layout<T, Dims<D...>, States...> {
    using element = T;
    using dims = Dims<D...>;
    static constexpr std::size_t rank = sizeof...(D);
    static_assert(rank <= max_dimensions, "pentad: a layout has at most six dimensions");
    static_assert(TensorElement<T>,
                  "pentad: elements of a tensor are of a type that is declared one: write a "
                  "pentad::Element<T> for it, with its name and its accumulator (layout/element.hpp)");
    static_assert((detail::has_name<D> && ...),
                  "pentad: a dimension is an empty type with a name: struct rows { static "
                  "constexpr std::string_view name = \"rows\"; };");
    static_assert(
        (detail::names_axes<D> && ...) && (detail::names_axes<States> && ...),
        "pentad: an axis is an empty type with a name: struct rows { static constexpr std::string_view name = "
        "\"rows\"; };");

    static constexpr LayoutValue value = [] {
        LayoutValue layout;
        if constexpr (TensorElement<T> && (detail::has_name<D> && ...) && (detail::names_axes<D> && ...) &&
                      (detail::names_axes<States> && ...)) {
            layout.element = Element<T>::name;
            layout.element_size = sizeof(T);
            (detail::add(layout, D{}), ...);
            (detail::add(layout, States{}), ...);
        }
        return layout;
    }();
    static_assert(
        !detail::names_an_axis_twice(value),
        "pentad: a layout names each axis once: an axis shards one dimension, or is partial, or is replicated");
    static_assert((detail::views_of_part<D> & ... & 3U) & (detail::views_of_part<States> & ... & 3U),
                  "pentad: a layout names axes of one view of the mesh: dp, cp and tp, or edp, ep and etp");
    static_assert(!detail::names_a_dimension_twice(value), "pentad: a layout names each dimension once");
    static_assert(!detail::has_summands(value) || Addable<T>, "pentad: elements that cannot be added are not partial");
    static_assert(!detail::has_summands(value) || !Addable<T> || is_commutative<T>,
                  "pentad: summands of ranks are added in no certain order: the Element of what they are says that its "
                  "operator+ commutes, static constexpr bool is_commutative = true; what does not is not partial");
    static_assert((value.partial_max.empty() && value.partial_min.empty()) || Ordered<T>,
                  "pentad: elements that cannot be compared are no partial maxima or minima");
    static_assert(value.partial_log_sum_exp.empty() || Real<T>, "pentad: a partial log-sum-exp is of f64, f32 or bf16");
};

/// The short form of a layout type, as text that can be a template argument.
template <class L>
inline constexpr Text layout_text = [] {
    Text out;
    write(out, L::value);
    return out;
}();

/// The short form of a layout value with the given global extents.
inline std::string to_string(LayoutValue const& layout, std::size_t const* extents = nullptr) {
    Text out;
    write(out, layout, extents);
    return std::string(out.view());
}

} // namespace pentad
