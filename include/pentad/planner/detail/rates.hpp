// How long an operation takes on a machine, and what bounds it.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/planner/account.hpp>
#include <pentad/planner/hardware.hpp>
#include <pentad/planner/nodes.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace pentad::planner {

using namespace ml;

enum class Bound { compute, memory, network, launches };
inline constexpr std::array<std::string_view, 4> bound_names{"compute", "memory", "network", "kernel launches"};

/// Times operations of one configuration.
class Rates {
  public:
    Rates(Hardware const& hardware, Strategy const& c)
        : hardware_(&hardware), peak_(hardware.peak(c.element) * hardware.product_efficiency),
          block_peak_(c.fp8_products && hardware.peak_fp8 > 0 ? hardware.peak_fp8 * hardware.product_efficiency
                                                              : peak_),
          has_fp8_(c.fp8_products),
          accumulator_peak_(hardware.peak(c.element == Element::f64 ? Element::f64 : Element::f32) *
                            hardware.product_efficiency) {
        auto const views = c.views();
        for (std::size_t i = 0; i < view_axes.size(); ++i) {
            auto const groups = groups_along(views, view_axes[i]);
            axes_[i] = {
                view_axes[i],       groups.extent, &tier(groups), groups.stride, groups.extent / groups.major_extent,
                groups.major_stride};
        }
        auto const experts = groups_along(views, ep::name);
        auto const each = nodes_of(experts, hardware.devices_per_node).each;
        set_parts(ep_parts, experts, each > 0 ? each : experts.extent);
        set_parts(cp_parts, groups_along(views, cp::name), c.block.inner_cp);
        auto const grid = model::tensor_factors(c.block.tensor_kind, c.tp);
        auto inside = groups_along(views, tp::name);
        set_parts(tp_parts, inside, grid ? grid->inner() : 1);
        if (grid) {
            inside.extent = grid->inner();
            set_parts(tp_parts + 1, inside, grid->columns);
        }
    }

    /// As if each axis were joined by the fastest links that reach that far: no order of the axes is faster, where
    /// dispatch goes to so many nodes (dispatch_nodes()).
    static Rates of_any_order(Hardware const& hardware, Strategy const& c, std::int64_t nodes = 1) {
        Rates rates(hardware, c);
        rates.axes_[ep_parts].extent = nodes;
        auto const ep_ranks = static_cast<std::int64_t>(c.expert_mesh().ep);
        rates.axes_[ep_parts + 1].extent = ep_ranks / nodes;
        for (auto& axis : rates.axes_) {
            axis.stride = 1;
            axis.minor = axis.extent;
            axis.link = rates.fastest(axis.extent);
        }
        if (nodes > 1) rates.axes_[ep_parts].link = rates.fastest(std::max(ep_ranks, hardware.devices_per_node + 1));
        return rates;
    }

    /// Seconds on the device. Products take their memory traffic on top of their FLOPs, which is what makes small ones
    /// slow.
    [[nodiscard]] double products(double flops, double bytes) const { return flops / peak_ + traffic(bytes); }
    /// Seconds of the products of a block. In FP8 operands are read, written in FP8 and read again: twice the traffic
    /// (DeepSeek-V3, section 3.5.2).
    [[nodiscard]] double block_products(double flops, double bytes) const {
        return flops / block_peak_ + traffic(has_fp8_ ? 2 * bytes : bytes);
    }
    /// Seconds of large products of accumulators.
    [[nodiscard]] double accumulator_products(double flops) const { return flops / accumulator_peak_; }
    /// Seconds of attention and scans.
    [[nodiscard]] double attention(double flops, double bytes) const {
        return flops / (peak_ * hardware_->attention_efficiency) + traffic(bytes);
    }
    /// Seconds of passes over activations.
    [[nodiscard]] double passes(double bytes) const { return traffic(bytes) / hardware_->pass_efficiency; }
    /// Seconds that so many operations take besides their work.
    [[nodiscard]] double product_starts(double products) const { return products * hardware_->product_s; }
    [[nodiscard]] double pass_starts(double passes) const { return passes * hardware_->pass_s; }
    /// Seconds of the host, which starts so many operations, in so many calls.
    [[nodiscard]] double launches(double operations, double calls) const {
        return operations * hardware_->launch_s + calls * hardware_->call_s;
    }
    /// Seconds on the network. @param axis as traffic_axis() numbers them
    [[nodiscard]] double exchanges(std::size_t axis, Traffic const& x) const {
        double seconds = 0;
        if (x.bytes > 0 || x.rounds > 0) seconds += collective(axis, x.bytes, x.rounds);
        if (x.message_bytes > 0 || x.messages > 0) seconds += messages(axis, x.message_bytes, x.messages);
        return seconds + (x.waits > 0 ? waiting(axes_[axis].extent, x.waits) : 0) + waiting(2, x.meetings);
    }

    /// Seconds of one thing that a dry run recorded, and what bounds it. On the mesh it may take no time at all.
    /// @param in_block it is of a block
    [[nodiscard]] std::pair<double, Bound> of(observe::Work const& x, std::span<MeshAxisValue const> mesh,
                                              bool in_block) const {
        using observe::WorkKind;
        double compute = 0, memory = traffic(x.bytes), network = 0;
        if (x.kind == WorkKind::product) {
            compute = x.flops / (in_block ? block_peak_ : peak_);
            if (in_block && has_fp8_) memory *= 2;
        }
        if (x.kind == WorkKind::attention || x.kind == WorkKind::scan)
            compute = x.flops / (peak_ * hardware_->attention_efficiency);
        double starts = product_starts(1);
        if (x.kind == WorkKind::pass) memory = passes(x.bytes), starts = pass_starts(1);
        if (x.kind == WorkKind::exchange) {
            MeshPart part;
            PassTraffic traffic;
            add_traffic(part, traffic, detail::sum_of(x), mesh, std::nullopt);
            for (std::size_t axis = 0; axis < traffic_axes; ++axis)
                if (traffic[axis].is_used()) network += exchanges(axis, traffic[axis]);
            if (network == 0) return {0, Bound::network};
            compute = memory = starts = 0;
        }
        double const device = compute + memory + network + starts, host = launches(1, x.kind == WorkKind::pass ? 0 : 1);
        if (host > device || starts > device / 2) return {std::max(host, device), Bound::launches};
        return {device, network > 0 ? Bound::network : compute > memory ? Bound::compute : Bound::memory};
    }

    /// A collective along an axis: `bytes` that each rank sends, in `messages` rounds.
    /// @param axis as traffic_axis() numbers them
    [[nodiscard]] double collective(std::size_t axis, double bytes, double messages) const {
        auto const& along = axes_[axis];
        return (bytes > 0 ? bytes / bandwidth(*along.link, along.extent) : 0) + messages * along.link->latency_s;
    }
    /// Seconds of a collective among the first `ranks` neighbours along an axis.
    [[nodiscard]] double near_collective(std::string_view axis, std::int64_t ranks, double bytes,
                                         double messages) const {
        auto const& along = at(axis);
        auto const& link = tier(std::max(along.stride * std::min(ranks, along.minor),
                                         ranks > along.minor ? along.major_stride * (ranks / along.minor) : 0));
        return (bytes > 0 ? bytes / bandwidth(link, ranks) : 0) + messages * link.latency_s;
    }
    /// Messages that go round, or from every rank to every other.
    [[nodiscard]] double messages(std::size_t axis, double bytes, double count) const {
        auto const& along = axes_[axis];
        return (bytes > 0 ? bytes / message_bandwidth(*along.link, along.extent) : 0) +
               count * message_latency(*along.link);
    }
    /// From a rank to its neighbour along an axis.
    [[nodiscard]] double message(std::string_view axis, double bytes) const {
        auto const& link = tier(2 * at(axis).stride);
        return bytes / message_bandwidth(link, 2) + message_latency(link) + waiting(2, 1);
    }
    /// What decides between orders of the axes: the tiers that join the groups along each axis, and neighbours along
    /// pp; the ranks of dp that the nearest tier joins; the ranks of ep on a node, and the tier that joins them; the
    /// tier that joins inner(cp).
    struct Tiers {
        std::array<Link const*, view_axes.size() + 4> links{};
        std::int64_t experts_inside = 1;
        friend bool operator==(Tiers const&, Tiers const&) = default;
    };
    [[nodiscard]] Tiers tiers() const {
        Tiers tiers;
        auto const links = tiers.links.begin() + view_axes.size();
        for (std::size_t i = 0; i < view_axes.size(); ++i) {
            auto const& axis = axes_[i];
            tiers.links[i] = axis.extent > 1 ? axis.link : nullptr;
            if (axis.name == pp::name && axis.extent > 1) links[0] = &tier(2 * axis.stride);
        }
        if (near_ranks(dp::name) > 1) links[1] = &hardware_->links.front();
        auto const& inside = at(inner<ep>::name);
        links[2] = inside.extent > 1 ? inside.link : nullptr;
        tiers.experts_inside = inside.extent;
        auto const& inside_cp = at(inner<cp>::name);
        links[3] = inside_cp.extent > 1 ? inside_cp.link : nullptr;
        return tiers;
    }
    /// As many neighbours along an axis as the nearest tier joins.
    [[nodiscard]] std::int64_t near_ranks(std::string_view axis) const {
        auto const& known = at(axis);
        if (hardware_->links.empty()) return 1;
        return std::clamp<std::int64_t>(hardware_->links.front().devices / known.stride, 1, known.minor);
    }
    /// Along an axis. @param axis as traffic_axis() numbers them
    [[nodiscard]] std::int64_t ranks(std::size_t axis) const { return axes_[axis].extent; }
    [[nodiscard]] Hardware const& hardware() const { return *hardware_; }

  private:
    struct AxisLink {
        std::string_view name;
        std::int64_t extent = 1;
        Link const* link = nullptr; ///< the tier that joins all ranks of a group along the axis
        std::int64_t stride = 1;
        std::int64_t minor = 1, major_stride = 1; ///< where it is of two pieces: ranks of the minor one
    };

    /// The places of the parts of ep, of cp and of tp in axes_.
    static constexpr std::size_t ep_parts = view_axes.size(), cp_parts = ep_parts + 2, tp_parts = cp_parts + 2;

    void set_parts(std::size_t at, AxisGroups const& groups, std::int64_t inside) {
        auto const inner = groups.inner(inside);
        axes_[at] = {traffic_axis(at), groups.extent / inside, &tier(groups), groups.stride * inside,
                     groups.extent / inside};
        axes_[at + 1] = {traffic_axis(at + 1), inside, &tier(inner), groups.stride, inside};
    }
    [[nodiscard]] double traffic(double bytes) const { return bytes / hardware_->memory_bandwidth; }
    /// A group meets as in a tree of pairs.
    [[nodiscard]] double waiting(std::int64_t group, double times) const {
        return times * hardware_->jitter_s * std::log2(static_cast<double>(group));
    }
    /// The nearest tier that joins each of the groups.
    [[nodiscard]] Link const& tier(AxisGroups const& groups) const {
        for (auto const& link : hardware_->links)
            if (nodes_of(groups, link.devices).most == 1) return link;
        return tier(groups.devices);
    }
    [[nodiscard]] Link const& tier(std::int64_t span) const {
        for (auto const& link : hardware_->links)
            if (link.devices >= span) return link;
        if (!hardware_->links.empty()) return hardware_->links.back();
        static constexpr Link none{.devices = 1, .latency_s = 0, .bandwidth = 1e30};
        return none;
    }
    [[nodiscard]] Link const* fastest(std::int64_t group) const {
        Link const* best = &tier(group > 1 ? group : 1);
        for (auto const& link : hardware_->links)
            if (group > 1 && link.devices >= group && bandwidth(link, group) > bandwidth(*best, group)) best = &link;
        return best;
    }
    [[nodiscard]] double message_bandwidth(Link const& link, std::int64_t group) const {
        double const part = link.message_bandwidth > 0 ? link.message_bandwidth / link.bandwidth : 1;
        return bandwidth(link, group) * part;
    }
    [[nodiscard]] static double message_latency(Link const& link) {
        return link.message_latency_s > 0 ? link.message_latency_s : link.latency_s;
    }
    [[nodiscard]] double bandwidth(Link const& link, std::int64_t group) const {
        double const used = link.topology == Topology::mesh ? static_cast<double>(std::min(group, link.devices) - 1) /
                                                                  static_cast<double>(link.devices - 1)
                                                            : 1;
        return link.bandwidth * hardware_->bandwidth_efficiency * used;
    }
    [[nodiscard]] AxisLink const& at(std::string_view axis) const {
        for (auto const& known : axes_)
            if (is_same_axis(known.name, axis)) return known;
        throw std::invalid_argument("there is no axis " + std::string(axis));
    }

    Hardware const* hardware_;
    double peak_, block_peak_;                ///< FLOP/s of products of elements, and of those of blocks
    bool has_fp8_;                            ///< of blocks
    double accumulator_peak_;                 ///< FLOP/s of products of accumulators
    std::array<AxisLink, traffic_axes> axes_; ///< as traffic_axis() numbers them
};

} // namespace pentad::planner
