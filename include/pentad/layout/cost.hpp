// What a plan sends, known before it runs: the bytes that each rank sends along each
// axis, by the bandwidth-optimal algorithm of each collective.
#pragma once

#include <pentad/layout/block.hpp>
#include <pentad/layout/exchange.hpp>
#include <pentad/layout/halo.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pentad {

/// Bytes that one rank sends, by axis. A collective over several axes counts on each as if it ran axis by axis, the
/// minor one first for a reduction and last for a gather: the parts add up to the cost over the whole group.
struct Cost {
    AxisNames axes;
    std::array<double, max_axes> bytes{};

    constexpr void add(std::string_view axis, double more) {
        for (std::size_t i = 0; i < axes.size(); ++i)
            if (axes[i] == axis) {
                bytes[i] += more;
                return;
            }
        axes.push(axis);
        bytes[axes.size() - 1] = more;
    }
    [[nodiscard]] constexpr double on(std::string_view axis) const {
        for (std::size_t i = 0; i < axes.size(); ++i)
            if (axes[i] == axis) return bytes[i];
        return 0;
    }
    [[nodiscard]] constexpr double total() const {
        double sum = 0;
        for (std::size_t i = 0; i < axes.size(); ++i) sum += bytes[i];
        return sum;
    }
};

/// The cost of a reduce-scatter (or of the all-gather back) over a group along `axes`, where `whole` is the number of
/// bytes of the unscattered side: (n-1)/n of it, (Chan et al. 2007, section 3), told apart by axis.
constexpr void add_scatter_cost(Cost& cost, std::span<MeshAxisValue const> mesh, AxisNames const& axes, double whole) {
    for (std::size_t i = axes.size(); i-- > 0;) {
        double const n = find_axis(mesh, axes[i]).extent;
        cost.add(axes[i], whole * (n - 1) / n);
        whole /= n;
    }
}

/// The axes of the view that `axes` are of, which tell all ranks apart: of the first where both views have them.
constexpr AxisNames axes_of_view(std::span<MeshAxisValue const> mesh, AxisNames const& axes = {}) {
    unsigned view = 1;
    for (auto const name : axes)
        for (auto const& axis : mesh)
            if (axis.views == 2 && is_same_axis(axis.name, whole_axis_name(name))) view = 2;
    AxisNames all;
    for (auto const& axis : mesh)
        if ((axis.views & view) != 0) all.push(axis.name);
    return all;
}

/// The number of ranks along `axes`.
constexpr std::size_t ranks_along(std::span<MeshAxisValue const> mesh, AxisNames const& axes) {
    std::size_t ranks = 1;
    for (auto const axis : axes) ranks *= static_cast<std::size_t>(find_axis(mesh, axis).extent);
    return ranks;
}

/// The cost of `sent` bytes to other ranks of a group along `axes`: told apart by axis as those of an all-to-all with
/// equal pieces.
constexpr void add_sent_cost(Cost& cost, std::span<MeshAxisValue const> mesh, AxisNames const& axes, double sent) {
    auto const n = static_cast<double>(ranks_along(mesh, axes));
    if (n > 1) add_scatter_cost(cost, mesh, axes, sent * n / (n - 1));
}

/// The ranks of the mesh that differ from `rank` along `axes` only, major to minor: in the order of a communicator.
inline std::vector<int> members_along(std::span<MeshAxisValue const> mesh, AxisNames const& axes, int rank) {
    std::vector<int> members{rank};
    for (auto const name : axes) { // each axis multiplies the members found so far
        auto const axis = find_axis(mesh, name);
        std::vector<int> more;
        for (int const member : members)
            for (int i = 0; i < axis.extent; ++i) more.push_back(axis.moved(member, i));
        members = more;
    }
    return members;
}

/// The place of a rank of the mesh among the ranks along `axes`, major to minor.
constexpr std::size_t place_along(std::span<MeshAxisValue const> mesh, AxisNames const& axes, int rank) {
    std::size_t place = 0;
    for (auto const axis : axes) {
        auto const along = find_axis(mesh, axis);
        place = place * static_cast<std::size_t>(along.extent) + static_cast<std::size_t>(along.coordinate(rank));
    }
    return place;
}

/// The shape of a rank's shard, given the global extents; of any rank where blocks are equal.
/// @throws std::invalid_argument naming the dimension, the axes and the numbers when they do not divide.
constexpr ShardShape shard_shape(LayoutValue const& layout, std::span<std::size_t const> global,
                                 std::span<MeshAxisValue const> mesh, int rank = 0) {
    ShardShape shape;
    shape.rank = layout.rank;
    for (std::size_t d = 0; d < layout.rank; ++d) {
        auto const& dimension = layout.dimensions[d];
        auto const block = block_of(dimension, global[d], mesh, rank);
        shape.blocks[d] = block;
        if (!dimension.is_uneven && global[d] % block.count != 0) {
            std::string axes;
            for (auto const axis : dimension.axes) {
                auto const whole = whole_axis_name(axis); // of an axis that is not split there is no need to name parts
                bool const is_whole = find_axis(mesh, axis).extent == find_axis(mesh, whole).extent;
                axes += (axes.empty() ? "" : " x ") + std::string(is_whole ? whole : axis);
            }
            throw std::invalid_argument(std::string(dimension.name) + " = " + std::to_string(global[d]) +
                                        " is not divisible by " + axes + " = " + std::to_string(block.count));
        }
        if (dimension.boundary == Boundary::periodic && dimension.width > global[d])
            throw std::invalid_argument(std::string(dimension.name) + " = " + std::to_string(global[d]) +
                                        " is periodic, and has fewer elements than its halo of " +
                                        std::to_string(dimension.width));
        shape.ghosts[d] = dimension.width;
        shape.local[d] = block.size() + 2 * dimension.width;
    }
    return shape;
}
/// The local extents of a layout, as numbers.
constexpr std::array<std::size_t, max_dimensions> local_extents(LayoutValue const& layout,
                                                                std::span<std::size_t const> global,
                                                                std::span<MeshAxisValue const> mesh, int rank = 0) {
    return shard_shape(layout, global, mesh, rank).local;
}

namespace detail {

/// The cost of a plan for a rank of the mesh; -1: for all of them, where only exchanges tell them apart.
constexpr Cost cost_of(PlanValue const& plan, LayoutValue const& from, ShardShape shape,
                       std::span<MeshAxisValue const> mesh, int rank) {
    Cost cost;
    auto const size = static_cast<double>(from.element_size);
    for (auto const& step : plan) {
        std::size_t const n = ranks_along(mesh, step.axes);
        std::size_t const index = rank < 0 ? 0 : place_along(mesh, step.axes, rank);
        if (is_halo(step.kind) && !is_local(step.kind)) {
            auto const sent = static_cast<double>(HaloShape(step, shape).sent_by(step.kind, index));
            add_sent_cost(cost, mesh, step.axes, sent * size);
        }
        double const bytes = size * static_cast<double>(shape.size());
        if (step.kind == StepKind::exchange || is_uneven(step, shape, n)) {
            auto const exchange = step.kind == StepKind::exchange ? plan.exchange : exchange_of(step);
            ExchangeShape const boxes(step, exchange, shape, mesh);
            double const sent = rank >= 0 ? static_cast<double>(boxes.sent_by(index))
                                          : static_cast<double>(boxes.sent()) / static_cast<double>(n);
            add_sent_cost(cost, mesh, step.axes, sent * size);
            boxes.reshape(shape, index);
            continue;
        }
        if (step.kind == StepKind::all_gather) add_scatter_cost(cost, mesh, step.axes, bytes * static_cast<double>(n));
        if (step.kind == StepKind::reduce_scatter || step.kind == StepKind::all_to_all)
            add_scatter_cost(cost, mesh, step.axes, bytes);
        if (step.kind == StepKind::all_reduce) add_scatter_cost(cost, mesh, step.axes, 2 * bytes);
        reshape(shape, step, n, index);
    }
    return cost;
}

} // namespace detail

/// The cost of a plan for one rank, from the global extents of the tensor.
/// @param rank of the mesh: ranks may send different amounts in an exchange, and where blocks are uneven; -1: their
/// mean
constexpr Cost cost_of(PlanValue const& plan, LayoutValue const& from, std::span<std::size_t const> global,
                       std::span<MeshAxisValue const> mesh, int rank = -1) {
    bool const differs = from.is_uneven() ||
                         std::any_of(plan.begin(), plan.end(), [](PlanStep const& step) { return is_halo(step.kind); });
    if (rank >= 0 || !differs)
        return detail::cost_of(plan, from, shard_shape(from, global, mesh, std::max(rank, 0)), mesh, rank);
    int const ranks = rank_count(mesh);
    Cost mean;
    for (int r = 0; r < ranks; ++r) {
        auto const cost = detail::cost_of(plan, from, shard_shape(from, global, mesh, r), mesh, r);
        for (std::size_t i = 0; i < cost.axes.size(); ++i) mean.add(cost.axes[i], cost.bytes[i] / ranks);
    }
    return mean;
}

/// The cost of redistributing from one layout type to another.
template <class From, class To, MeshOfRanks M, std::size_t Rank>
constexpr Cost cost_of(std::array<std::size_t, Rank> const& global, M const& mesh) {
    static_assert(Rank == From::rank, "pentad: one global extent for each dimension of the layout");
    return cost_of(Plan<From, To>::value, From::value, global, mesh.axes());
}

} // namespace pentad
