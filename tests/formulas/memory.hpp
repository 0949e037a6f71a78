// Memory of a rank: parameters, gradients and optimizer state under ZeRO, and what a GPT
// layer keeps for its backward pass; and what ZeRO sends for that.
#pragma once

#include <formulas/volume.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace pentad::planner {

/// Bytes for each parameter. Adam in mixed precision keeps a copy of the parameters and two moments in f32: 12
/// (Rajbhandari et al. 2020, section 3.1). Gradients summed in f32 take 4.
struct ParameterBytes {
    double parameter = 2;
    double gradient = 2;
    double optimizer = 12;
};

/// Parameters of a rank: layers are shared out over pp, matrices over tp, experts over ep. Over dp and cp, and for what
/// is no expert over ep, they are whole: gradients are summed over these. Small parts are left out: tp does not share
/// out norms and routers, and the projections to k and v only up to a kv head for each rank (attention_weights).
constexpr double parameters_of_a_rank(double dense, double of_experts, std::int64_t pp, std::int64_t tp,
                                      std::int64_t ep = 1) {
    double const model = static_cast<double>(pp * tp);
    return dense / model + of_experts / (model * static_cast<double>(ep));
}

/// Bytes of a rank for each parameter of the rank's model shard, under ZeRO over `ranks` (Rajbhandari et al. 2020,
/// figure 1): the product of the axes over which the gradient is partial; dp, cp and ep for what is no expert.
/// @throws std::invalid_argument for a stage that is none
constexpr double zero_bytes(int stage, std::int64_t ranks, ParameterBytes const& of = {}) {
    if (stage < 0 || stage > 3)
        throw std::invalid_argument("ZeRO stage " + std::to_string(stage) + ": the stages are 0 to 3");
    if (ranks < 1) throw std::invalid_argument("ranks = " + std::to_string(ranks) + ": it must be at least 1");
    auto const n = static_cast<double>(ranks);
    return of.optimizer / (stage >= 1 ? n : 1) + of.gradient / (stage >= 2 ? n : 1) +
           of.parameter / (stage >= 3 ? n : 1);
}

/// One optimizer step under ZeRO.
struct ZeroStep {
    int stage = 1;
    std::int64_t ranks = 1;
    std::int64_t micro_batches = 1;
    /// Stage 3: parameters stay gathered through the step's micro-batches (and are whole in memory for that long).
    bool keeps_parameters = false;
};

/// Bytes that a rank sends in a step for each parameter of its model shard (Rajbhandari et al. 2020, section 7, for one
/// micro-batch). Stage 0 all-reduces gradients; 1 reduce-scatters them and gathers parameters; 2 holds only its share
/// of the sum and so reduce-scatters each micro-batch's; 3 gathers parameters for each forward and each backward pass.
constexpr double zero_sent_bytes(ZeroStep const& step, ParameterBytes const& of = {}) {
    static_cast<void>(zero_bytes(step.stage, step.ranks)); // refuses
    auto const times = static_cast<double>(step.micro_batches);
    if (step.stage == 0) return all_reduce_bytes(of.gradient, step.ranks);
    double const reduced = (step.stage == 1 ? 1 : times) * of.gradient;
    double const gathered = (step.stage < 3 || step.keeps_parameters ? 1 : 2 * times) * of.parameter;
    return reduce_scatter_bytes(reduced + gathered, step.ranks);
}

/// What is computed anew in the backward pass.
enum class Recomputed { nothing, attention_core, layer };

/// A GPT layer: attention of as many kv heads as heads, a feed-forward block of 4 hidden without a gate, dropout.
struct GptLayer {
    std::int64_t batch = 1; ///< of the rank
    std::int64_t seq = 1;   ///< of the rank
    std::int64_t hidden = 1;
    std::int64_t heads = 1;
    std::int64_t tp = 1;
    bool sequence_parallel = false;
    Recomputed recomputed = Recomputed::nothing;
};

/// Bytes that a GPT layer keeps of one micro-batch in 16-bit elements and masks of a byte (Korthikanti et al. 2022,
/// equations 1 to 4, table 2). 34 sbh/t is tp with sequence parallelism and the core of attention recomputed, or fused.
/// Of a layer that is computed anew its input is left, which sequence parallelism shards: 2 sbh, or 2 sbh/t.
constexpr double gpt_layer_bytes(GptLayer const& of) {
    auto const s = static_cast<double>(of.seq), h = static_cast<double>(of.hidden), t = static_cast<double>(of.tp);
    double const sbh = s * static_cast<double>(of.batch) * h;
    if (of.recomputed == Recomputed::layer) return 2 * sbh / (of.sequence_parallel ? t : 1);
    double const core = of.recomputed == Recomputed::nothing ? 5 * static_cast<double>(of.heads) * s / h : 0;
    double const beside = of.sequence_parallel ? 10 / t : 10; // norms, dropouts, inputs of the sharded products
    return sbh * (beside + (24 + core) / t);
}

} // namespace pentad::planner
