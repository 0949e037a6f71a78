// A mesh whose axes are a list at run time: what other views of the ranks of a mesh are made of.
#pragma once

#include <pentad/mesh/fold.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad {

class ValueMesh {
  public:
    explicit ValueMesh(std::vector<MeshAxisValue> axes) : axes_(std::move(axes)) {}

    [[nodiscard]] std::vector<MeshAxisValue> const& axes() const { return axes_; }
    /// Number of ranks.
    [[nodiscard]] int size() const { return rank_count(axes_); }
    /// Number of ranks along A, or along a factor of it.
    template <AxisTag A>
    [[nodiscard]] int extent() const {
        return find_axis(axes_, A::name).extent;
    }
    /// As that of a Mesh.
    template <AxisTag A>
    [[nodiscard]] ValueMesh split(int inner_extent) const {
        ValueMesh mesh = *this;
        for (auto& axis : mesh.axes_)
            if (axis.name == whole_axis_name(A::name)) detail::split(axis, A::name, inner_extent);
        return mesh;
    }

  private:
    std::vector<MeshAxisValue> axes_;
};

/// The ranks of a mesh with other extents along some of its axes, which are row-major in the order in which they are
/// given: the last of them joins neighbours. The other axes stay as they are.
/// @param extents of which the names and the extents count
/// @throws std::invalid_argument where these are not as many ranks, or no such nest of them
inline ValueMesh refolded(std::span<MeshAxisValue const> mesh, std::span<MeshAxisValue const> extents) {
    constexpr std::size_t most = 8;
    std::array<MeshAxisValue, most> replaced{};
    std::size_t count = 0;
    std::vector<MeshAxisValue> axes(mesh.begin(), mesh.end());
    int ranks = 1, wanted = 1;
    auto const is_given = [&](MeshAxisValue const& axis) {
        return std::any_of(extents.begin(), extents.end(), [&](auto const& one) { return one.name == axis.name; });
    };
    for (auto const& axis : axes)
        if (is_given(axis)) {
            if (count == most) throw std::length_error("pentad: more than 8 axes of a mesh are given");
            ranks *= axis.extent;
            replaced[count] = axis;
            replaced[count++].views = 1;
        }
    for (auto const& axis : extents) wanted *= axis.extent;
    if (ranks != wanted)
        throw std::invalid_argument(detail::product_text(extents) + " are not the " + std::to_string(ranks) +
                                    " ranks along these axes of the mesh");
    auto runs = detail::RankRuns<most>::of(replaced);
    for (std::size_t i = extents.size(); i-- > 0;)
        for (auto& axis : axes) {
            if (axis.name != extents[i].name) continue;
            axis = {.name = axis.name, .extent = extents[i].extent, .views = axis.views};
            if (!runs.cut(axis))
                throw std::invalid_argument(detail::product_text(extents) +
                                            ": these ranks of the mesh cannot be nested so");
        }
    return ValueMesh(std::move(axes));
}

} // namespace pentad
