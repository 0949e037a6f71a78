// The elements of a run beside the one that the layers store parameters in and compute with, as a value.
#pragma once

#include <pentad/layout/compact.hpp>
#include <pentad/model/optimizer.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace pentad::model {

/// The element type of weights and activations.
enum class Element { f64, f32, bf16 };

/// Gradients are accumulated in accumulators always: f64 where layers compute in f64, else f32.
struct Precision {
    /// In which gradients travel; what arrives is summed in accumulators. fp8: what rounding takes away from a summand
    /// is added to it the next time (error feedback).
    Compact reduce = Compact::none;
    /// In which the rows of tokens travel to their experts, and gradients on the same way; sums come back in bf16 at
    /// the least. Rounded to nearest, where they leave a rank: results depend on the mesh.
    Compact rows = Compact::none;
    Compact moments = Compact::none; ///< in which the optimizer's moments are kept, rounded stochastically
    /// Whether f32 weights are kept behind bf16 ones. Otherwise an update is rounded stochastically to bf16 (Zamirai et
    /// al. 2020), with the same bits on all ranks that hold the same weights.
    bool keeps_masters = true;

    friend bool operator==(Precision const&, Precision const&) = default;
};

/// A moment that is never negative has no sign to keep.
inline bool has_sign(std::string_view state) { return state != "second_moment"; }

/// How a tensor of optimizer state is kept.
struct StateTensor {
    std::string_view name; ///< "weight" is the masters
    Compact element = Compact::none;
};
/// What the optimizer keeps of a bucket, in this order. @param is_compact whether the weights are no accumulators
inline std::vector<StateTensor> state_tensors(Optimizer const& optimizer, Precision const& precision, bool is_compact) {
    std::vector<StateTensor> tensors;
    if (is_compact && precision.keeps_masters) tensors.push_back({"weight"});
    for (auto const name : state_names(optimizer)) tensors.push_back({name, precision.moments});
    return tensors;
}
/// The bytes of each. @param elements of the rank's shard of the bucket
inline std::vector<std::size_t> state_bytes(std::span<StateTensor const> tensors, std::size_t elements,
                                            std::size_t accumulator_size) {
    std::vector<std::size_t> bytes;
    for (auto const& tensor : tensors) bytes.push_back(compact_bytes(tensor.element, elements, accumulator_size));
    return bytes;
}

} // namespace pentad::model
