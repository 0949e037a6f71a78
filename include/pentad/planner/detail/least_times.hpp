// Lower bounds of the time of a step, over all schedules and all orders of the axes.
#pragma once

#include <pentad/planner/estimate.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/planner/nodes.hpp>
#include <pentad/planner/stage_times.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace pentad::planner::detail {

/// Lower bounds of the time of a step for the configurations of one search, memoised. A step is counted without
/// synchronisation, with its work dealt evenly to the stages.
class LeastTimes {
  public:
    LeastTimes(Model const& model, Hardware const& hardware) : model_(&model), hardware_(&hardware) {}

    /// @param pairs the schedule may have pairs @throws std::invalid_argument as Model::parts()
    [[nodiscard]] double step(Strategy const& c, bool pairs) {
        double least = std::numeric_limits<double>::infinity();
        for (auto const nodes : dispatch_nodes_on(c)) {
            auto const [at, is_new] = known_.try_emplace({pairs, model_->shape(c, nodes)});
            if (is_new) {
                auto const time = passes(c, nodes, PartsFrom::sums);
                at->second = pairs ? time.paired_seconds() : time.seconds();
            }
            least = std::min(least, at->second);
        }
        return of_step(c, least);
    }
    /// On any mesh of experts, of which the FLOPs alone are counted: no dry run is made for each.
    [[nodiscard]] double step_beside_experts(Strategy const& c, bool pairs) {
        auto const [at, is_new] = beside_experts_.try_emplace({pairs, model_->shape(c, 1).without_experts()});
        if (is_new) at->second = beside_experts(c, pairs);
        return of_step(c, at->second);
    }

  private:
    [[nodiscard]] static double of_step(Strategy const& c, double seconds) {
        // A little less, for sums that are rounded in another order.
        return static_cast<double>(c.micro_batches) * seconds / static_cast<double>(c.pp) * (1 - 1e-6);
    }
    [[nodiscard]] PassTimes passes(Strategy const& c, std::int64_t nodes, PartsFrom from) const {
        Account const account(*model_, c, 1, nodes, false, from);
        auto const whole = whole_shape(*model_, c);
        return StageTimes(account, Rates::of_any_order(*hardware_, c, nodes)).passes_of(whole);
    }
    [[nodiscard]] double beside_experts(Strategy const& c, bool pairs) {
        PassTimes time;
        try {
            time = passes(c, 1, PartsFrom::runs_beside_experts);
        } catch (std::invalid_argument const&) {
            return 0; // a dry run with experts will say why
        }
        double const share = 0.99 * static_cast<double>(c.micro_batch() * c.seq) / static_cast<double>(c.cp * c.tp);
        auto const& flops = expert_flops();
        Rates const rates(*hardware_, c);
        double device = 0, seconds = 0;
        auto const add = [&](PassTime const& pass, double of_token) {
            double const busy = pass.device + rates.block_products(share * of_token, 0);
            device += busy;
            seconds += std::max(busy, pass.launches);
        };
        add(time.forward, flops[0]);
        add(time.backward_data, flops[1]);
        add(time.backward_weight, flops[2]);
        // Without launches: where they bound a pass, exchanges of experts could hide behind them.
        return pairs ? std::max(device - time.exchanges(), time.exchanges()) : seconds;
    }
    /// FLOPs of the branches of experts for a token, in each pass.
    [[nodiscard]] std::array<double, 3> const& expert_flops() {
        if (expert_flops_) return *expert_flops_;
        Strategy const alone{.batch = 1, .seq = 128, .element = Element::f32}; // which every program has
        auto const whole = whole_shape(*model_);
        auto even = *model_;
        even.imbalance = 1;
        auto& flops = expert_flops_.emplace();
        auto const add = [&](PartsFrom from, double sign) {
            Account(even, alone, 1, 1, false, from).for_each_kind(whole, [&](MeshPart const& part, double count) {
                for (std::size_t i = 0; i < flops.size(); ++i)
                    flops[i] += sign * count * part.passes()[i]->product_flops / static_cast<double>(alone.seq);
            });
        };
        add(PartsFrom::runs, 1);
        add(PartsFrom::runs_beside_experts, -1);
        return flops;
    }
    [[nodiscard]] std::vector<std::int64_t> const& dispatch_nodes_on(Strategy const& c) {
        auto const on = c.expert_mesh();
        auto& known = nodes_[{c.dp, c.pp, c.ep, c.cp, c.tp, on.ep, on.etp, c.order}];
        if (known.empty()) known = dispatch_nodes_in_any_order(*model_, c, hardware_->devices_per_node);
        return known;
    }

    Model const* model_;
    Hardware const* hardware_;
    std::map<std::pair<bool, PartShape>, double> known_, beside_experts_; ///< seconds of a micro-batch
    std::optional<std::array<double, 3>> expert_flops_;
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, int, int,
                        std::array<std::string_view, 5>>,
             std::vector<std::int64_t>>
        nodes_;
};

} // namespace pentad::planner::detail
