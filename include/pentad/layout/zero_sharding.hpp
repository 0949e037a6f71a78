// What ZeRO shards (Rajbhandari et al. 2020, section 5), and over which axes.
#pragma once

#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/axis.hpp>
#include <pentad/mesh/refusal.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace pentad {

/// What is sharded, and for how long.
struct ZeroSharding {
    /// 0: nothing; 1: the optimizer state; 2: the gradients too; 3: the parameters too
    int stage = 0;
    /// Hybrid sharding: the ranks along dp that share one copy, inner(dp); there are copies along outer(dp) (MiCS,
    /// Zhang et al. 2022; HSDP). Parameters of experts use inner(edp) and outer(edp) instead. 0: all share one
    int ranks = 0;
    /// Stage 3: parameters are gathered once a step and kept, instead of gathered for each pass.
    bool keeps_parameters = false;
    /// Stages 2 and 3: whole gradients are accumulated and reduced once a step, instead of after each micro-batch:
    /// fewer bytes, more memory.
    bool accumulates_gradients = false;
    /// The weights of a unit are updated as soon as its gradients are complete, whose memory is then reused. Gradients
    /// cannot be clipped: the updates come before the global norm is known.
    bool releases_gradients = false;

    friend bool operator==(ZeroSharding const&, ZeroSharding const&) = default;

    [[nodiscard]] bool shards_gradients() const { return stage >= 2; }
    [[nodiscard]] bool shards_parameters() const { return stage >= 3; }
    /// Whether gradients are allocated by the first backward pass and freed when they are reduced.
    [[nodiscard]] bool has_temporary_gradients() const { return shards_gradients() || releases_gradients; }
    [[nodiscard]] bool reduces_each_micro_batch() const { return shards_gradients() && !accumulates_gradients; }
    /// Why there is no such sharding; nothing where there is.
    [[nodiscard]] std::optional<Refusal> refusal() const {
        auto const is = stated("sharding.stage", stage);
        if (stage < 0 || stage > 3) return Refusal{"sharding.stage", is + " is not between 0 and 3"};
        if (ranks < 0) return Refusal{"sharding.ranks", stated("sharding.ranks", ranks) + " is less than 0"};
        if (ranks > 0 && stage == 0)
            return Refusal{"sharding.stage", stated("sharding.ranks", ranks) + " shards nothing with " + is};
        if (keeps_parameters && !shards_parameters())
            return Refusal{"sharding.stage",
                           "sharding.keeps_parameters = on keeps gathered parameters, and " + is + " gathers none"};
        if (accumulates_gradients && !shards_gradients())
            return Refusal{"sharding.stage",
                           "sharding.accumulates_gradients = on is a choice of sharding.stage = 2 and 3: with " + is +
                               " whole gradients are accumulated anyway"};
        return std::nullopt;
    }
};

/// The axes over which a gradient is partial, by what ZeRO does along them.
struct ZeroAxes {
    AxisNames partial; ///< all of them, with dp and edp in their factors where sharding is hybrid
    AxisNames copied;  ///< of them, those that shard nothing
    AxisNames shards;  ///< those that shard the optimizer state
    AxisNames in_step; ///< of these, those that shard gradients and parameters during a step
    AxisNames at_end;  ///< the others
};

/// The two holders of a tied embedding each keep theirs. Ranks that differ along the axis of the stages process
/// micro-batches in different orders: they communicate only at the end of a step.
/// @param partial the axes over which the gradient is partial @param stages the axis of the pipeline
inline ZeroAxes zero_axes(AxisNames const& partial, ZeroSharding const& sharding,
                          std::string_view stages = ml::pp::name) {
    ZeroAxes axes;
    auto const add = [&axes](AxisNames& to, std::string_view axis) {
        axes.partial.push(axis);
        to.push(axis);
    };
    for (auto axis : partial) {
        if (sharding.stage > 0 && sharding.ranks > 0 && (axis == ml::dp::name || axis == ml::edp::name)) {
            bool const is_of_experts = axis == ml::edp::name;
            add(axes.copied, is_of_experts ? outer<ml::edp>::name : outer<ml::dp>::name);
            axis = is_of_experts ? inner<ml::edp>::name : inner<ml::dp>::name;
        }
        bool const is_copied = sharding.stage == 0 || axis.starts_with("ends(");
        add(is_copied ? axes.copied : axes.shards, axis);
        if (!is_copied) (whole_axis_name(axis) == stages ? axes.at_end : axes.in_step).push(axis);
    }
    return axes;
}

} // namespace pentad
