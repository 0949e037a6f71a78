// What a plan sends, known before it runs: the bytes that each rank sends along each
// axis, by the bandwidth-optimal algorithm of each collective.
#pragma once

#include <pentad/layout/exchange.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/mesh/mesh.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

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

/// The cost of `sent` bytes to other ranks of a group along `axes`: told apart by axis as those of an all-to-all with
/// equal pieces.
constexpr void add_sent_cost(Cost& cost, std::span<MeshAxisValue const> mesh, AxisNames const& axes, double sent) {
    double n = 1;
    for (auto const axis : axes) n *= find_axis(mesh, axis).extent;
    if (n > 1) add_scatter_cost(cost, mesh, axes, sent * n / (n - 1));
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

/// The extents of a rank's shard, given the global ones.
/// @throws std::invalid_argument naming the dimension, the axes and the numbers when they do not divide.
constexpr std::array<std::size_t, max_dimensions>
local_extents(LayoutValue const& layout, std::span<std::size_t const> global, std::span<MeshAxisValue const> mesh) {
    std::array<std::size_t, max_dimensions> local{};
    for (std::size_t d = 0; d < layout.rank; ++d) {
        std::size_t shards = 1;
        for (auto const axis : layout.dimensions[d].axes)
            shards *= static_cast<std::size_t>(find_axis(mesh, axis).extent);
        if (global[d] % shards != 0) {
            std::string axes;
            for (auto const axis : layout.dimensions[d].axes) {
                auto const whole = whole_axis_name(axis); // of an axis that is not split there is no need to name parts
                bool const is_whole = find_axis(mesh, axis).extent == find_axis(mesh, whole).extent;
                axes += (axes.empty() ? "" : " x ") + std::string(is_whole ? whole : axis);
            }
            throw std::invalid_argument(std::string(layout.dimensions[d].name) + " = " + std::to_string(global[d]) +
                                        " is not divisible by " + axes + " = " + std::to_string(shards));
        }
        local[d] = global[d] / shards;
    }
    return local;
}

/// The cost of a plan for one rank, from the global extents of the tensor.
/// @param rank of the mesh: ranks may send different amounts in an exchange; -1: their mean
constexpr Cost cost_of(PlanValue const& plan, LayoutValue const& from, std::span<std::size_t const> global,
                       std::span<MeshAxisValue const> mesh, int rank = -1) {
    Cost cost;
    auto local = local_extents(from, global, mesh);
    auto const size = static_cast<double>(from.element_size);
    for (auto const& step : plan) {
        std::size_t n = 1;
        for (auto const axis : step.axes) n *= static_cast<std::size_t>(find_axis(mesh, axis).extent);
        double bytes = size;
        for (std::size_t d = 0; d < from.rank; ++d) bytes *= static_cast<double>(local[d]);
        switch (step.kind) {
        case StepKind::all_gather:
            add_scatter_cost(cost, mesh, step.axes, bytes * static_cast<double>(n));
            local[step.dimension] *= n;
            break;
        case StepKind::reduce_scatter:
            add_scatter_cost(cost, mesh, step.axes, bytes);
            local[step.dimension] /= n;
            break;
        case StepKind::all_reduce:
            add_scatter_cost(cost, mesh, step.axes, 2 * bytes);
            break;
        case StepKind::all_to_all:
            add_scatter_cost(cost, mesh, step.axes, bytes);
            local[step.dimension] /= n;
            local[step.from_dimension] *= n;
            break;
        case StepKind::exchange: {
            ExchangeShape const shape(step, plan.exchange, std::span(local).first(from.rank), mesh);
            double sent = 0;
            if (rank >= 0)
                sent = static_cast<double>(shape.sent_by(place_along(mesh, step.axes, rank)));
            else
                for (std::size_t i = 0; i < n; ++i)
                    sent += static_cast<double>(shape.sent_by(i)) / static_cast<double>(n);
            add_sent_cost(cost, mesh, step.axes, sent * size);
            for (std::size_t d = 0; d < from.rank; ++d) local[d] = shape.after(d);
            break;
        }
        case StepKind::slice:
            local[step.dimension] /= n;
            break;
        case StepKind::zero_pad:
            local[step.dimension] *= n;
            break;
        case StepKind::keep_first:
        case StepKind::relabel:
            break;
        }
    }
    return cost;
}

/// The cost of redistributing from one layout type to another.
template <class From, class To, class... Axes, std::size_t Rank>
constexpr Cost cost_of(std::array<std::size_t, Rank> const& global, Mesh<Axes...> const& mesh) {
    static_assert(Rank == From::rank, "pentad: one global extent for each dimension of the layout");
    return cost_of(Plan<From, To>::value, From::value, global, mesh.axes());
}

} // namespace pentad
