// A second view of the ranks of a mesh: along some axes both agree, and the ranks along the others are factored anew,
// as those of attention's axes are for experts (parallel folding, Liu et al. 2025, arXiv 2504.14960).
#pragma once

#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad {

namespace detail {

/// Ranks at one distance from each other.
struct RankRun {
    int extent = 1, stride = 1;
};

/// The ranks along some axes as runs that lie apart, innermost first.
template <std::size_t N>
struct RankRuns {
    std::array<RankRun, 2 * N> runs{};
    std::size_t count = 0;

    /// All axes of a view but for those that both views have.
    static constexpr RankRuns of(std::array<MeshAxisValue, N> const& axes) {
        RankRuns result;
        auto const add = [&result](int extent, int stride) {
            if (extent == 1) return;
            std::size_t at = result.count++;
            for (; at > 0 && result.runs[at - 1].stride > stride; --at) result.runs[at] = result.runs[at - 1];
            result.runs[at] = {extent, stride};
        };
        for (auto const& axis : axes) {
            if (axis.views != 1) continue;
            add(axis.extent / axis.major_extent, axis.stride);
            add(axis.major_extent, axis.major_stride);
        }
        std::size_t kept = 0;
        for (std::size_t i = 1; i < result.count; ++i) {
            auto& last = result.runs[kept];
            if (result.runs[i].stride == last.stride * last.extent)
                last.extent *= result.runs[i].extent;
            else
                result.runs[++kept] = result.runs[i];
        }
        result.count = std::min(result.count, kept + 1);
        return result;
    }
    /// Cuts the innermost ranks off for an axis. False where its extent does not fit the runs.
    constexpr bool cut(MeshAxisValue& axis) {
        int left = axis.extent;
        for (int pieces = 0; left > 1; ++pieces) {
            if (first_ == count || pieces == 2) return false;
            auto& run = runs[first_];
            int const here = std::min(left, run.extent);
            if (left % here != 0 || run.extent % here != 0) return false;
            if (pieces == 0)
                axis.stride = run.stride;
            else {
                axis.major_extent = here;
                axis.major_stride = run.stride;
            }
            left /= here;
            run = {run.extent / here, run.stride * here};
            if (run.extent == 1) ++first_;
        }
        return true;
    }

  private:
    std::size_t first_ = 0;
};

/// What the tags of a mesh say of the views that its axes are in.
template <class M>
struct AxesOf;
template <class... Axes>
struct AxesOf<Mesh<Axes...>> {
    static constexpr unsigned views(std::string_view name) {
        unsigned found = 1;
        ((Axes::tag::name == name ? void(found = views_of<typename Axes::tag>) : void()), ...);
        return found;
    }
    /// Along the axes that one view has, or `dynamic`.
    static constexpr std::size_t ranks = [] {
        std::size_t product = 1;
        auto const multiply = [&product](std::size_t extent) {
            product = product == dynamic || extent == dynamic ? dynamic : product * extent;
        };
        ((views_of<typename Axes::tag> == 3 ? void() : multiply(Axes::extent)), ...);
        return product;
    }();
};

inline std::string product_text(std::span<MeshAxisValue const> axes) {
    std::string names, extents;
    int product = 1;
    for (auto const& axis : axes) {
        if (axis.views == 3) continue;
        names += (names.empty() ? "" : " x ") + std::string(axis.name);
        extents += (extents.empty() ? "" : " x ") + std::to_string(axis.extent);
        product *= axis.extent;
    }
    return names + " = " + extents + " = " + std::to_string(product);
}

} // namespace detail

/// Two views of the same ranks. A tensor is of one of them: its layout names axes of the first, or of the second.
template <class First, class Second>
class FoldedMesh {
  public:
    static constexpr std::size_t rank = First::rank + Second::rank;
    /// True when A, or the axis that A is a factor of, is an axis of either view.
    template <class A>
    static constexpr bool has = First::template has<A> || Second::template has<A>;

    /// Two views of ranks whose axes are known: not checked.
    constexpr FoldedMesh(First const& first, std::array<MeshAxisValue, Second::rank> second) {
        for (auto& axis : second) axis.views = 2;
        set(first, second);
    }
    /// The second view in row-major order. @throws std::invalid_argument naming the axes and the numbers, where it is
    /// not of the same ranks
    constexpr FoldedMesh(First const& first, Second const& second) {
        auto axes = first.axes();
        for (auto& axis : axes) axis.views = detail::AxesOf<First>::views(axis.name);
        auto folded = second.axes();
        int ranks = 1;
        for (auto& axis : folded) {
            axis.stride = axis.major_extent = axis.major_stride = axis.inner = axis.innermost = 1;
            axis.views = 2;
            ranks *= axis.extent;
        }
        int region = 1;
        for (auto const& axis : axes)
            if (axis.views == 1) region *= axis.extent;
        if (ranks != region)
            throw std::invalid_argument(detail::product_text(folded) + ", and " + detail::product_text(axes) +
                                        ": both views of a mesh have all of its ranks");
        auto runs = detail::RankRuns<First::rank>::of(axes);
        for (std::size_t i = folded.size(); i-- > 0;)
            if (!runs.cut(folded[i]))
                throw std::invalid_argument(std::string(folded[i].name) + " = " + std::to_string(folded[i].extent) +
                                            " does not divide the ranks that follow each other, of which there are " +
                                            detail::product_text(axes) +
                                            ": make the axes that both views have the outermost ones");
        set(first, folded);
    }

    /// The axes of the first view, then the axes of the second.
    [[nodiscard]] constexpr std::array<MeshAxisValue, rank> const& axes() const { return axes_; }
    /// Number of ranks.
    [[nodiscard]] constexpr int size() const { return rank_count(axes_); }
    /// Number of ranks along A, or along a factor of it.
    template <AxisTag A>
    [[nodiscard]] constexpr int extent() const {
        static_assert(has<A>, "pentad: this mesh has no such axis");
        return find_axis(axes_, A::name).extent;
    }
    /// Where `rank` stands along A, or along a factor of it.
    template <AxisTag A>
    [[nodiscard]] constexpr int coordinate(int rank_number) const {
        static_assert(has<A>, "pentad: this mesh has no such axis");
        return find_axis(axes_, A::name).coordinate(rank_number);
    }
    /// As that of a Mesh.
    template <AxisTag A>
    [[nodiscard]] constexpr FoldedMesh split(int inner_extent) const {
        static_assert(has<A>, "pentad: this mesh has no such axis");
        static_assert(detail::may_be_split<A>, "pentad: only an axis and its inner factor are split");
        FoldedMesh mesh = *this;
        for (auto& axis : mesh.axes_)
            if (axis.name == whole_axis_name(A::name)) detail::split(axis, A::name, inner_extent);
        return mesh;
    }
    /// Whether axis A can be split so.
    template <AxisTag A>
    [[nodiscard]] constexpr bool can_split(int inner_extent) const {
        for (auto const& axis : axes_)
            if (axis.name == A::name) return detail::can_split(axis, inner_extent);
        return false;
    }
    /// As that of a Mesh.
    template <AxisTag A>
    [[nodiscard]] constexpr FoldedMesh joined() const {
        static_assert(has<A>, "pentad: this mesh has no such axis");
        FoldedMesh mesh = *this;
        for (auto& axis : mesh.axes_)
            if (axis.name == A::name) axis.is_joined = true;
        return mesh;
    }

    friend constexpr bool operator==(FoldedMesh const& a, FoldedMesh const& b) { return a.axes_ == b.axes_; }

  private:
    constexpr void set(First const& first, std::array<MeshAxisValue, Second::rank> const& second) {
        std::copy(first.axes().begin(), first.axes().end(), axes_.begin());
        for (std::size_t i = 0; i < First::rank; ++i) axes_[i].views = detail::AxesOf<First>::views(axes_[i].name);
        std::copy(second.begin(), second.end(), axes_.begin() + First::rank);
    }

    std::array<MeshAxisValue, rank> axes_{};
};

namespace detail {
template <class First, class Second>
inline constexpr bool are_views = false;
template <class... Axes, class... Others>
inline constexpr bool are_views<Mesh<Axes...>, Mesh<Others...>> =
    ((views_of<typename Axes::tag> != 2) && ...) && ((views_of<typename Others::tag> == 2) && ...);
} // namespace detail

/// The ranks of a mesh with a second view: along the axes that both have (whose tags say `views = 3`) they agree, and
/// the ranks along the other axes of the first, in their order in rank space, are those of the second (whose tags say
/// `views = 2`) in row-major order.
/// @throws std::invalid_argument as the constructor of FoldedMesh; does not compile where static extents differ
template <class First, class Second>
constexpr FoldedMesh<First, Second> fold(First const& first, Second const& second) {
    static_assert(detail::are_views<First, Second>,
                  "pentad: the axes of a second view have tags with `views = 2`, and those of the first have not");
    constexpr std::size_t ranks = detail::AxesOf<First>::ranks, others = detail::AxesOf<Second>::ranks;
    static_assert(ranks == dynamic || others == dynamic || ranks == others,
                  "pentad: two views of a mesh have the same ranks");
    return {first, second};
}

} // namespace pentad
