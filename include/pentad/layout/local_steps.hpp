// Local SGD: groups of ranks along dp train apart for a number of steps, and then average their parameters (Stich 2019;
// DiLoCo, Douillard et al. 2023).
#pragma once

#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/axis.hpp>
#include <pentad/mesh/refusal.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace pentad {

/// Ranks along inner(dp) share every step; those along outer(dp) meet at averages only. Between averages parameters are
/// not invariant over outer(dp), and gradients are not reduced over it.
struct LocalSteps {
    int steps = 0; ///< from one average to the next; 0: there are none, all of dp shares every step
    int ranks = 1; ///< neighbours along dp that share every step: inner(dp)
    /// What an average does to the parameters: SGD with Nesterov momentum on the mean of how far the groups have come
    /// since the last one (DiLoCo: 0.7 and 0.9). 1 and 0: the parameters become their mean.
    double outer_learning_rate = 1, outer_momentum = 0;

    friend bool operator==(LocalSteps const&, LocalSteps const&) = default;

    [[nodiscard]] bool is_on() const { return steps > 0; }
    [[nodiscard]] bool has_outer_optimizer() const { return outer_learning_rate != 1 || outer_momentum != 0; }
    /// Whether groups average after a step, counted from 1. @param last of the run, after which they do in any case
    [[nodiscard]] bool averages_after(std::int64_t step, std::int64_t last) const {
        return is_on() && (step % steps == 0 || step == last);
    }
    /// The axes along which ranks meet at averages only, as attention sees them or as experts do.
    [[nodiscard]] AxisNames apart(bool of_experts = false) const {
        if (!is_on()) return {};
        return AxisNames(of_experts ? outer<ml::edp>::name : outer<ml::dp>::name);
    }
    /// Axes without those along which ranks meet at averages only.
    [[nodiscard]] AxisNames together(AxisNames const& axes) const {
        AxisNames kept;
        for (auto axis : axes) {
            if (is_on() && axis == ml::dp::name) axis = inner<ml::dp>::name;
            if (is_on() && axis == ml::edp::name) axis = inner<ml::edp>::name;
            kept.push(axis);
        }
        return kept;
    }
    /// Why there are no such steps; nothing where there are.
    [[nodiscard]] std::optional<Refusal> refusal() const {
        if (steps < 0) return Refusal{"local.steps", stated("local.steps", steps) + " is less than 0, for none"};
        if (ranks < 1) return Refusal{"local.ranks", stated("local.ranks", ranks) + " is less than 1"};
        if (!(outer_learning_rate > 0))
            return Refusal{"local.outer_learning_rate",
                           stated("local.outer_learning_rate", outer_learning_rate) + " is not above 0"};
        if (!(outer_momentum >= 0 && outer_momentum < 1))
            return Refusal{"local.outer_momentum",
                           stated("local.outer_momentum", outer_momentum) + " is not from 0 to below 1"};
        if (!is_on() && ranks > 1)
            return Refusal{"local.ranks", stated("local.ranks", ranks) + " says nothing with local.steps = 0"};
        return std::nullopt;
    }
};

} // namespace pentad
