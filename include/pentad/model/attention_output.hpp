// How the outputs of attention's heads become the residual stream.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace pentad::model {

/// With t ranks of tp, b x s tokens on them and a stream of d elements.
enum class AttentionOutput {
    /// Each rank multiplies its heads by its part of the projection, and the products are summed: an all-reduce, under
    /// sequence parallelism a reduce-scatter of b s d elements (Korthikanti et al. 2023, arXiv 2205.05198).
    reduce_scatter,
    /// Heads are exchanged for sequence, an all-to-all of b s d / t elements, and each rank multiplies its tokens by
    /// the
    /// whole projection, which every rank holds and whose gradient, of d^2 elements, is summed over tp.
    all_to_all
};
/// The words of --attention-output.
inline constexpr std::array<std::string_view, 2> attention_output_names{"reduce-scatter", "all-to-all"};
inline std::string_view name(AttentionOutput output) {
    return attention_output_names[static_cast<std::size_t>(output)];
}

} // namespace pentad::model
