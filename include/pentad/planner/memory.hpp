// The memory of a rank: weights, gradients and optimizer state as ZeRO shards them, and activations.
#pragma once

#include <pentad/planner/detail/buckets.hpp>

#include <vector>

namespace pentad::planner {

/// Bytes of one rank.
struct Memory {
    double weights = 0, gradients = 0, optimizer = 0;
    double offloaded = 0;   ///< optimizer state in files, no part of the total; `optimizer` is the window then
    double activations = 0; ///< of all micro-batches in flight
    double workspace = 0;   ///< what passes and updates need at most, beyond the peak of activations

    [[nodiscard]] double total() const { return weights + gradients + optimizer + activations + workspace; }
};

/// What the optimizer keeps of a bucket. bf16 with f32 masters and AdamW: 12 bytes for each element (Rajbhandari et al.
/// 2020, section 3.1).
[[nodiscard]] inline std::vector<model::StateTensor> state_tensors(Bucket const& bucket, Strategy const& c) {
    auto const& own = bucket.like->own_optimizer;
    return model::state_tensors(own ? *own : model::optimizer_for(c.optimizer, !bucket.matrices.empty()),
                                precision_of(bucket, c), c.element == Element::bf16);
}
/// The memory of a rank's optimizer state where it is offloaded. @param stages the buckets of each stage of the rank
[[nodiscard]] double offload_window(std::vector<std::vector<Bucket>> const& stages, Strategy const& c);

/// Adds what a bucket takes for the whole step.
/// @param versions of the weights, which an asynchronous schedule keeps
void add_bucket(Memory& memory, Bucket const& bucket, Strategy const& c, int versions);
/// The most that two units, one after the other, have at once: while one computes, the values of the next unit of its
/// stage arrive, and the gradients of the previous unit, of any stage of the rank, are reduced.
struct TwoUnits {
    double values = 0, gradients = 0; ///< bytes; values that are sharded
};
/// @param stages the buckets of each stage of the rank
[[nodiscard]] TwoUnits two_units(std::vector<std::vector<Bucket>> const& stages, Strategy const& c);
/// Adds the temporary memory of units, of the averages of local steps, which come a bucket at a time, and the window of
/// offloaded optimizer state.
/// @param stages the buckets of each stage of the rank
void add_temporary(Memory& memory, std::vector<std::vector<Bucket>> const& stages, Strategy const& c);

/// The memory of a rank of the pipeline without activations.
/// @param stages the buckets of each stage of the rank @param versions of the weights
[[nodiscard]] Memory parameter_memory(std::vector<std::vector<Bucket>> const& stages, Strategy const& c, int versions);

/// The most that the updates of the buckets of a rank need beside weights, gradients and optimizer state: scattered
/// sums of gradients that wait for them, and whole matrices; or, before them, the last reductions: what is sent, and
/// what arrives, where gradients travel in fewer bits.
/// @param stages the buckets of each stage of the rank
[[nodiscard]] double update_workspace(std::vector<std::vector<Bucket>> const& stages, Strategy const& c);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/memory.hpp>
#endif
