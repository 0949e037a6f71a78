// All that does not depend on the elements of a product: made once for each shape, and kept.
#pragma once

#include <pentad/product/detail/schedule.hpp>
#include <pentad/product/roles.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace pentad::detail {

/// The axes along which a factor moves from one layout to another, in the order of their names, as a plan's exchange
/// has them: so both use one communicator.
constexpr AxisNames moving_axes(LayoutValue const& held, LayoutValue const& used) {
    AxisNames axes;
    for (std::size_t d = 0; d < held.rank; ++d) {
        auto const &before = held.dimensions[d].axes, &after = used.dimensions[d].axes;
        auto const common = common_axes(before, after);
        for (auto const* list : {&before, &after})
            for (std::size_t i = common; i < list->size(); ++i)
                if (!axes.contains((*list)[i])) axes.push((*list)[i]);
    }
    return sorted(axes);
}

/// Where the three matrices of a product lie; the meshes have the same ranks.
struct ProductMatrices {
    LayoutValue a, b, c;
    ProductExtents extents;
    std::span<MeshAxisValue const> mesh_of_a, mesh_of_b, mesh_of_c;
    int rank = 0;
};

/// A plan with what this rank does.
class PreparedProduct {
  public:
    /// The factors' layouts are those of `matrices`, or others on their way to the same product.
    PreparedProduct(ProductMatrices const& matrices, ProductPlan const& plan)
        : rank_(matrices.rank), extents_(matrices.extents), plan_(plan),
          meshes_{copied(matrices.mesh_of_a), copied(matrices.mesh_of_b), copied(matrices.mesh_of_c)},
          a_sum_(make_plan(plan.a, plan.a_summed)), b_sum_(make_plan(plan.b, plan.b_summed)),
          out_(make_plan(plan.computed, plan.c)) {
        auto const& at = plan_.at;
        a_ = move_of(meshes_[0], plan_.a_summed, plan_.a_used, at.a_inner, extents_.rows);
        b_ = move_of(meshes_[1], plan_.b_summed, plan_.b_used, at.b_inner, extents_.columns);
    }
    PreparedProduct(PreparedProduct&&) = default;
    PreparedProduct& operator=(PreparedProduct&&) = default;

    /// Whether it is of these; only the layouts are not compared.
    [[nodiscard]] bool is_of(ProductMatrices const& matrices) const {
        return rank_ == matrices.rank && extents_.rows == matrices.extents.rows &&
               extents_.columns == matrices.extents.columns && extents_.inner == matrices.extents.inner &&
               is_same(meshes_[0], matrices.mesh_of_a) && is_same(meshes_[1], matrices.mesh_of_b) &&
               is_same(meshes_[2], matrices.mesh_of_c);
    }

    [[nodiscard]] ProductPlan const& plan() const { return plan_; }
    [[nodiscard]] ProductExtents const& extents() const { return extents_; }
    [[nodiscard]] PlanValue const& a_sum() const { return a_sum_; }
    [[nodiscard]] PlanValue const& b_sum() const { return b_sum_; }
    /// From what is computed to C.
    [[nodiscard]] PlanValue const& out() const { return out_; }
    [[nodiscard]] FactorMove const& a() const { return a_; }
    [[nodiscard]] FactorMove const& b() const { return b_; }
    /// The extents of the result, as its layout has them.
    [[nodiscard]] std::array<std::size_t, 2> extents_of_result() const {
        return oriented(plan_.at.c_rows, extents_.rows, extents_.columns);
    }
    /// The shape of this rank's shard of what is computed.
    [[nodiscard]] ShardShape computed_shape() const {
        return shard_shape(plan_.computed, extents_of_result(), meshes_[2], rank_);
    }
    /// Whether it is computed in the layout of C, but for a relabelling.
    [[nodiscard]] bool computes_in_place() const {
        return std::all_of(out_.begin(), out_.end(), [](auto const& step) { return step.kind == StepKind::relabel; });
    }

    struct Schedules {
        std::size_t most; ///< elements of a panel
        FactorSchedule a, b;
        [[nodiscard]] std::size_t steps() const { return std::max({a.taken.size(), a.given.size(), b.given.size()}); }
    };
    /// The schedules with panels of at most `most` elements of the summed dimension.
    [[nodiscard]] Schedules const& schedules(std::size_t most) {
        for (auto const& known : schedules_)
            if (known && known->most == most) return *known;
        auto& made = schedules_[next_++ % schedules_.size()];
        made = Schedules{most, schedule_of(a_, a_, b_, most), schedule_of(b_, a_, b_, most)};
        return *made;
    }

  private:
    using MeshCopy = std::vector<MeshAxisValue>;

    static MeshCopy copied(std::span<MeshAxisValue const> mesh) { return {mesh.begin(), mesh.end()}; }
    static bool is_same(std::span<MeshAxisValue const> x, std::span<MeshAxisValue const> y) {
        return std::equal(x.begin(), x.end(), y.begin(), y.end());
    }
    [[nodiscard]] FactorMove move_of(MeshCopy const& mesh, LayoutValue const& held, LayoutValue const& used,
                                     std::size_t inner, std::size_t outer_extent) const {
        auto const extents = oriented(inner, extents_.inner, outer_extent);
        FactorMove move{
            {held, extents, mesh}, {used, extents, meshes_[2]}, inner, {}, !is_same(mesh, meshes_[2]), {}, 0};
        if (move.between_meshes) {
            move.axes = axes_of_view(mesh);
            for (int rank = 0; rank < rank_count(mesh); ++rank) move.members.push_back(rank);
        } else {
            for (auto const axis : moving_axes(held, used))
                if (find_axis(mesh, axis).extent > 1) move.axes.push(axis);
            move.members = members_along(mesh, move.axes, rank_);
        }
        move.me =
            static_cast<std::size_t>(std::find(move.members.begin(), move.members.end(), rank_) - move.members.begin());
        return move;
    }

    int rank_;
    ProductExtents extents_;
    ProductPlan plan_;
    std::array<MeshCopy, 3> meshes_; ///< the moves refer to them
    PlanValue a_sum_, b_sum_, out_;
    FactorMove a_, b_;
    std::array<std::optional<Schedules>, 2> schedules_;
    std::size_t next_ = 0;
};

} // namespace pentad::detail
