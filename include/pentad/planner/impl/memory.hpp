// The functions of <pentad/planner/memory.hpp>.
#pragma once

#include <pentad/planner/memory.hpp>

#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace pentad::planner {

/// The elements of a bucket's gradients for which the error of rounding is kept: summands of parts, summands of copies
/// of a part, and their sum.
PENTAD_INLINE double rounding_errors(Bucket const& bucket) {
    double const shard = bucket.elements / bucket.shards;
    return (bucket.shards > 1 ? bucket.elements : 0) + (bucket.copies > 1 ? shard + shard / bucket.copies : 0);
}

PENTAD_INLINE double offload_window(std::vector<std::vector<Bucket>> const& stages, Strategy const& c) {
    std::vector<std::size_t> states;
    for (auto const& buckets : stages)
        for (auto const& bucket : buckets)
            if (auto const tensors = state_tensors(bucket, c); !tensors.empty())
                states.push_back(model::offloaded_bytes(
                    model::state_bytes(tensors, static_cast<std::size_t>(std::ceil(bucket.elements / bucket.shards)),
                                       static_cast<std::size_t>(accumulator_size(c.element)))));
    return static_cast<double>(model::offload_window(states, c.offload.window_bytes).bytes());
}

PENTAD_INLINE void add_bucket(Memory& memory, Bucket const& bucket, Strategy const& c, int versions) {
    double const all = bucket.elements, shard = all / bucket.shards_in_step;
    bool const keeps_gathered = c.sharding.keeps_parameters && bucket.shards_in_step > 1;
    memory.weights +=
        size_of(c.element) * (versions * (c.sharding.shards_parameters() ? shard : all) + (keeps_gathered ? all : 0));
    if (has_exact_values(bucket, c)) memory.weights += versions * accumulator_size(c.element) * all;
    memory.gradients += accumulator_size(c.element) * (c.sharding.reduces_each_micro_batch() ? shard
                                                       : c.keeps_no_gradients()              ? 0
                                                                                             : all);
    double state = 0;
    for (auto const& tensor : state_tensors(bucket, c))
        state += compact_size(tensor.element, c.element) * all / bucket.shards;
    if (precision_of(bucket, c).reduce == Compact::fp8)
        memory.gradients += accumulator_size(c.element) * rounding_errors(bucket);
    (c.offload.optimizer ? memory.offloaded : memory.optimizer) += state;
    if (c.averages_groups() && c.local.has_outer_optimizer() &&
        !bucket.like->own_optimizer) // where the groups began, and a momentum
        memory.optimizer += (c.local.outer_momentum != 0 ? 2 : 1) * accumulator_size(c.element) * all / bucket.shards;
}

PENTAD_INLINE TwoUnits two_units(std::vector<std::vector<Bucket>> const& stages, Strategy const& c) {
    TwoUnits most;
    double largest_gradients = 0; // of a unit of the stages before
    for (auto const& buckets : stages) {
        double before_values = 0, before_gradients = 0, largest = 0;
        for (std::size_t i = 0; i < buckets.size();) {
            double own_values = 0, own_gradients = 0;
            for (int const unit = buckets[i].unit; i < buckets.size() && buckets[i].unit == unit; ++i) {
                if (buckets[i].shards_in_step > 1) own_values += size_of(c.element) * buckets[i].elements;
                own_gradients += accumulator_size(c.element) * buckets[i].elements;
            }
            most.values = std::max(most.values, before_values + own_values);
            most.gradients =
                std::max({most.gradients, before_gradients + own_gradients, largest_gradients + own_gradients});
            before_values = own_values;
            before_gradients = own_gradients;
            largest = std::max(largest, own_gradients);
        }
        largest_gradients = std::max(largest_gradients, largest);
    }
    return most;
}

PENTAD_INLINE void add_temporary(Memory& memory, std::vector<std::vector<Bucket>> const& stages, Strategy const& c) {
    if (c.offload.optimizer) memory.optimizer += offload_window(stages, c);
    auto const units = two_units(stages, c);
    if (c.sharding.shards_parameters() && !c.sharding.keeps_parameters) memory.weights += units.values;
    if (c.sharding.reduces_each_micro_batch() || c.keeps_no_gradients()) memory.gradients += units.gradients;
    if (!c.averages_groups()) return;
    double averaged = 0; // elements of a bucket
    for (auto const& buckets : stages)
        for (auto const& bucket : buckets) averaged = std::max(averaged, bucket.elements / bucket.shards);
    memory.optimizer += (c.local.outer_momentum != 0 ? 2 : 1) * accumulator_size(c.element) * averaged;
}

PENTAD_INLINE Memory parameter_memory(std::vector<std::vector<Bucket>> const& stages, Strategy const& c, int versions) {
    Memory memory;
    for (auto const& buckets : stages)
        for (auto const& bucket : buckets) add_bucket(memory, bucket, c, versions);
    add_temporary(memory, stages, c);
    return memory;
}

PENTAD_INLINE double update_workspace(std::vector<std::vector<Bucket>> const& stages, Strategy const& c) {
    double const size = accumulator_size(c.element);
    bool const waits_scattered = !c.sharding.reduces_each_micro_batch();
    auto const scattered = [&](Bucket const& bucket) {
        return waits_scattered && bucket.shards > 1 ? size * bucket.elements / bucket.shards : 0;
    };
    double waiting = 0, most = 0; // in sums of buckets whose updates are still to come
    if (!c.sharding.releases_gradients)
        for (auto const& buckets : stages)
            for (auto const& bucket : buckets) waiting += scattered(bucket);
    for (auto const& buckets : stages)
        for (auto const& bucket : buckets) {
            double const own = scattered(bucket);
            if (c.sharding.releases_gradients) waiting = own;
            most = std::max(most, waiting);
            if (!bucket.matrices.empty()) {
                double of_matrix = 0;
                for (auto const* const parameter : bucket.matrices)
                    of_matrix = std::max(of_matrix, parameter->matrices.workspace);
                double const whole = size * bucket.elements;
                if (bucket.shards > 1)
                    most = std::max({most, waiting + whole, waiting - own + whole + of_matrix,
                                     waiting - own + whole + whole / bucket.shards});
                else
                    most = std::max({most, waiting + of_matrix, waiting + (bucket.copies > 1 ? whole : 0)});
            }
            waiting -= own;
        }
    if (c.precision.reduce == Compact::none) return most;
    return std::max(most, 2 * compact_size(c.precision.reduce, c.element) / size * two_units(stages, c).gradients);
}

} // namespace pentad::planner
