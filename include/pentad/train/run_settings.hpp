// A training run, and the numbers of a step.
#pragma once

#include <pentad/layout/documents.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/strategy/strategy.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::train {

/// A training run: the model, how it lies on the ranks, and what it learns by.
struct RunSettings {
    model::Model model = model::decoder({});
    /// A Trainer takes the mesh, the stream, the element and the schedule from its other arguments, whatever is here.
    Strategy strategy{};
    std::optional<std::int32_t> ignored = std::nullopt; ///< a target that carries no loss
    std::optional<Packing> packing = std::nullopt;      ///< of several documents into a sequence
    std::int64_t steps = 100;                           ///< of the learning rate's schedule
    double learning_rate = 1e-3;                        ///< after the warm-up
    std::optional<double> min_learning_rate = {};       ///< after the last step; none: a tenth of that
    std::int64_t warmup = 10;
    double clip = 1; ///< largest global norm of the gradient; 0: any
    /// Steps in a row whose loss or gradient is not finite, none of which changes a weight, before step() gives up.
    std::int64_t max_bad_steps = 3;
    double balance_coefficient = 0.01;
    double z_coefficient = 0.001;
    /// Experts move between ranks after every so many steps, by the loads of that step; 0: never.
    std::int64_t rebalance_every = 0;
    double prediction_coefficient = 0.3; ///< of the mean loss of the model's predictors (DeepSeek-V3, eq. 25)
    std::uint64_t seed = 1;
};

/// The experts of a block by their places, which are dealt to the ranks of ep.
struct BlockOrder {
    std::size_t block = 0;
    std::vector<std::int32_t> experts;
};

/// How far a run has come.
struct RunPosition {
    std::int64_t step = 0;                   ///< of the last update
    std::int64_t sequences = 0;              ///< of the training data that it has seen
    std::int64_t bad_steps = 0;              ///< the last steps in a row that were not applied
    std::vector<BlockOrder> expert_orders{}; ///< of blocks whose experts have moved
};

/// Linear warm-up, then a cosine to the least at the last step. `step` counts from 1.
inline double learning_rate(RunSettings const& settings, std::int64_t step) {
    if (step <= settings.warmup)
        return settings.learning_rate * static_cast<double>(step) / static_cast<double>(settings.warmup);
    double const length = static_cast<double>(std::max<std::int64_t>(settings.steps - settings.warmup, 1));
    double const progress = std::min(static_cast<double>(step - settings.warmup) / length, 1.0);
    double const peak = settings.learning_rate, least = settings.min_learning_rate.value_or(0.1 * peak);
    return least + (peak - least) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

/// The numbers of a step, the same on every rank.
struct StepResult {
    double targets = 0; ///< that carry a loss, on all ranks; of validation, in all batches
    double loss = 0;    ///< cross-entropy: token losses / targets; without targets there is none, and this is 0
    /// Loss of multi-token prediction in training: token losses / targets of the next token, the mean over the modules.
    double prediction_loss = 0;
    double balance_loss = 0;  ///< summed over layers, averaged over micro-batches, unweighted
    double z_loss = 0;        ///< likewise
    double gradient_norm = 0; ///< of an asynchronous schedule, of local steps: root mean square over updates, groups
    double learning_rate = 0;
    std::size_t moved_experts = 0; ///< to another rank, after the step, in all layers
    double offload_wait = 0;       ///< seconds that the slowest rank waited for offloaded state and activations
    std::string not_finite{}; ///< what is not: "the gradient of model.norm.weight on rank 3 (stage 1)"; empty: nothing
};

/// Too many steps in a row came out as something other than finite numbers.
class NotFinite : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

} // namespace pentad::train
