// What a configuration of a model on a machine will take: time, memory, bytes.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/model/context_choice.hpp>
#include <pentad/planner/account.hpp>
#include <pentad/planner/detail/rates.hpp>
#include <pentad/planner/memory.hpp>
#include <pentad/planner/pipelines.hpp>
#include <pentad/planner/stage_times.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace pentad::planner {

using namespace ml;

struct Estimate {
    double step_s = 0;
    double tokens_per_s = 0;
    double mfu = 0;         ///< of the peak: ModelFlops::reported
    Memory fullest;         ///< of the rank that holds most
    double memory_peak = 0; ///< bytes of that rank
    double memory_mean = 0; ///< over ranks
    bool fits = false;
    PerAxis bytes;    ///< sent by all ranks in a step
    double flops = 0; ///< of products, by all ranks in a step, with what is recomputed
    Shares shares;
    /// What automatic recomputation comes to on this machine; else that of the configuration.
    model::Recomputation recompute;
    std::vector<std::int64_t> stage_layers{}; ///< of each stage
    std::vector<double> stage_seconds{};      ///< of a micro-batch in each stage, forward and backward
};

/// FLOPs that a model needs for a token, forward and backward, without what is recomputed.
struct ModelFlops {
    double computed = 0; ///< of causal attention the pairs that are computed
    double reported = 0; ///< of all pairs, as the field reports MFU (Chowdhery et al. 2022, appendix B)
};
ModelFlops model_flops_per_token(Model model, std::int64_t seq);

namespace detail {

/// How often gradients are reduced, and parameters gathered, in a step.
inline double reductions(Strategy const& c) {
    return c.sharding.reduces_each_micro_batch() ? static_cast<double>(c.micro_batches) : 1;
}
inline double gathers(Strategy const& c) {
    return c.sharding.stage == 0                                 ? 0
           : c.sharding.stage < 3 || c.sharding.keeps_parameters ? 1
                                                                 : 2 * static_cast<double>(c.micro_batches);
}

/// Seconds of a step that the synchronisation of a rank takes.
double synchronise(Synchronisation const& sum, Strategy const& c, Rates const& rates);
/// The norm of the gradients, then the update reads and writes everything.
inline double update(Memory const& memory, Hardware const& hardware) {
    double const state = memory.offloaded > 0 ? memory.offloaded : memory.optimizer; // what files take is not known
    return (2 * memory.gradients + 2 * state + memory.weights) / (hardware.memory_bandwidth * hardware.pass_efficiency);
}

inline pipeline::Time nanoseconds(double seconds) { return static_cast<pipeline::Time>(std::llround(seconds * 1e9)); }

} // namespace detail

/// Why a configuration cannot run at all, whatever the machine; empty where it can.
std::string misfit(Model const& model, Strategy const& c);
/// The part of misfit() that needs no dry run.
std::string misfit_by_rules(Model const& model, Strategy const& c);

namespace detail {

/// What a schedule is simulated with.
pipeline::Costs costs_of(Account const& account, std::vector<StageShape> const& shapes,
                         std::vector<StageTime> const& times, Rates const& rates, Strategy const& c);

/// What one rank of the pipeline holds, does and sends in a step.
struct RankAccount {
    double seconds = 0; ///< of a micro-batch
    Shares shares;
    Memory memory; ///< of weights, gradients and optimizer state
    Synchronisation synchronisation;
    PerAxis sent;
    double flops = 0;         ///< of products
    double update_flops = 0;  ///< of the optimizer's products, on the busiest of the ranks that share them
    double update_memory = 0; ///< what updates need beside weights, gradients and optimizer state
};

RankAccount account_of(int rank, pipeline::Schedule const& schedule, Account const& account,
                       std::vector<StageShape> const& shapes, std::vector<StageTime> const& times, Strategy const& c);

} // namespace detail

/// @throws std::invalid_argument with misfit()'s reason
Estimate estimate(Model const& model, Hardware const& hardware, Strategy const& c, Pipelines& pipelines);

inline Estimate estimate(Model const& model, Hardware const& hardware, Strategy const& c) {
    Pipelines pipelines;
    return estimate(model, hardware, c, pipelines);
}

/// The first of those ways of attention over cp with which a step is estimated to be the shortest, in seconds.
struct FastestContext {
    model::ContextSplit split;
    double seconds = std::numeric_limits<double>::infinity();
};
FastestContext fastest_context(Model const& model, Hardware const& hardware, Strategy c,
                               std::span<model::ContextSplit const> splits);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/estimate.hpp>
#endif
