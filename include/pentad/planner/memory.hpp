// The memory of a rank: weights, gradients and optimizer state as ZeRO shards them, and activations.
#pragma once

#include <pentad/planner/detail/buckets.hpp>

namespace pentad::planner {

/// Bytes of one rank.
struct Memory {
    double weights = 0, gradients = 0, optimizer = 0;
    double activations = 0; ///< of all micro-batches in flight
    double workspace = 0;   ///< what a pass needs beside them

    [[nodiscard]] double total() const { return weights + gradients + optimizer + activations + workspace; }
};

/// Bytes of an element's optimizer state: two moments, and a master where the weight is bf16 (Rajbhandari et al. 2020,
/// section 3.1: 12 bytes).
[[nodiscard]] constexpr double optimizer_size(Element element) {
    return (element == Element::bf16 ? 3 : 2) * accumulator_size(element);
}

/// Adds what a bucket takes.
inline void add_bucket(Memory& memory, Bucket const& bucket, Configuration const& c) {
    double const all = bucket.elements, shard = all / bucket.shards;
    memory.weights += size_of(c.element) * (c.zero >= 3 ? shard : all);
    memory.gradients += accumulator_size(c.element) * (c.zero >= 2 ? shard : all);
    memory.optimizer += optimizer_size(c.element) * (c.zero >= 1 ? shard : all);
}

} // namespace pentad::planner
