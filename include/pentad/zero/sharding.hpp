// What ZeRO shards, where and for how long.
#pragma once

#include <string>

namespace pentad::zero {

/// What is sharded, where and for how long (ZeRO; Rajbhandari et al. 2020, section 5).
struct Sharding {
    /// 0: nothing; 1: the optimizer state; 2: the gradients too; 3: the parameters too
    int stage = 0;
    /// Hybrid: over this many neighbours along dp, inner(dp), with copies along outer(dp) (MiCS, Zhang et al. 2022;
    /// HSDP). 0: over all
    int ranks = 0;
    /// Stage 3: gathered parameters stay until the end of the run of a schedule, and are not gathered for each pass.
    bool keeps_parameters = false;
    /// Stages 2 and 3: gradients are added up whole and reduced once a step, and not after each micro-batch: fewer
    /// bytes, more memory.
    bool accumulates_gradients = false;
    /// A unit's weights are updated when its gradients are complete, and their memory is used again. The norm of all
    /// gradients is known too late for clipping.
    bool releases_gradients = false;

    [[nodiscard]] bool shards_gradients() const { return stage >= 2; }
    [[nodiscard]] bool shards_parameters() const { return stage >= 3; }
    /// Gradients have memory only from the first addition on.
    [[nodiscard]] bool has_passing_gradients() const { return shards_gradients() || releases_gradients; }
    [[nodiscard]] bool reduces_each_micro_batch() const { return shards_gradients() && !accumulates_gradients; }
    /// Why there is no such sharding; empty where there is.
    [[nodiscard]] std::string refusal() const {
        if (stage < 0 || stage > 3) return "ZeRO stage " + std::to_string(stage) + ": stages 0, 1, 2 and 3 exist";
        if (ranks < 0) return "ZeRO over " + std::to_string(ranks) + " ranks";
        if (ranks > 0 && stage == 0) return "ZeRO over " + std::to_string(ranks) + " ranks shards nothing in stage 0";
        if (keeps_parameters && !shards_parameters()) return "only ZeRO stage 3 gathers parameters, which it may keep";
        if (accumulates_gradients && !shards_gradients())
            return "gradients are accumulated whole in ZeRO stages 0 and 1 anyway";
        return "";
    }
};

} // namespace pentad::zero
