// The memory of a rank: weights, gradients and optimizer state as ZeRO shards them, and activations.
#pragma once

#include <pentad/planner/detail/buckets.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

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

/// Adds what a bucket takes all the time.
inline void add_bucket(Memory& memory, Bucket const& bucket, Configuration const& c) {
    double const all = bucket.elements, part = all / bucket.parts;
    memory.weights += size_of(c.element) * (c.zero >= 3 && !c.zero_keeps ? part : all);
    if (c.zero >= 3 && c.zero_keeps && bucket.parts > 1) memory.weights += size_of(c.element) * part;
    memory.gradients += accumulator_size(c.element) * (c.reduces_each_micro_batch() ? part
                                                       : c.keeps_no_gradients()     ? 0
                                                                                    : all);
    memory.optimizer += optimizer_size(c.element) * (c.zero >= 1 ? all / bucket.shards : all);
}
/// Adds what units take for a time: two at most, as one computes while the values of the next of its stage arrive, and
/// the gradients of the one before, of any stage of the rank, are reduced.
/// @param stages the buckets of each
inline void add_passing(Memory& memory, std::vector<std::vector<Bucket>> const& stages, Configuration const& c) {
    double values = 0, gradients = 0, largest_gradients = 0; // of two neighbours; of another stage's unit
    for (auto const& buckets : stages) {
        double before_values = 0, before_gradients = 0, largest = 0;
        for (std::size_t i = 0; i < buckets.size();) {
            double own_values = 0, own_gradients = 0;
            for (int const unit = buckets[i].unit; i < buckets.size() && buckets[i].unit == unit; ++i) {
                if (buckets[i].parts > 1) own_values += size_of(c.element) * buckets[i].elements;
                own_gradients += accumulator_size(c.element) * buckets[i].elements;
            }
            values = std::max(values, before_values + own_values);
            gradients = std::max({gradients, before_gradients + own_gradients, largest_gradients + own_gradients});
            before_values = own_values;
            before_gradients = own_gradients;
            largest = std::max(largest, own_gradients);
        }
        largest_gradients = std::max(largest_gradients, largest);
    }
    if (c.zero >= 3 && !c.zero_keeps) memory.weights += values;
    if (c.reduces_each_micro_batch() || c.keeps_no_gradients()) memory.gradients += gradients;
}

} // namespace pentad::planner
