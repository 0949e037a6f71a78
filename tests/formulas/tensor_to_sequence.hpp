// From heads sharded over tp, as attention leaves them, to tokens sharded over tp, as a
// layer of experts takes them, through the output projection: three ways, what each sends, holds and computes.
#pragma once

#include <pentad/layout/ml.hpp>

#include <formulas/volume.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace pentad::planner {

using namespace ml;

/// tp divides tokens and width, or each of the three throws std::invalid_argument.
struct OutputProjectionSizes {
    std::int64_t tokens = 1; ///< of the micro-batch, on all ranks of tp
    std::int64_t width = 1;  ///< heads x head_dim: what the projection takes
    std::int64_t hidden = 1; ///< what it gives
    std::int64_t tp = 1;
    double element_bytes = 2;
    double gradient_bytes = 4;
};

struct OutputProjectionCost {
    SentBytes stream;           ///< of one micro-batch
    double weights = 0;         ///< elements that a rank holds of the projection
    double weight_gradient = 0; ///< bytes that a rank sends over tp for their gradient, once a step
    double flops = 0;           ///< of a rank's forward product: the same in all three
};

namespace detail {

using HeadsSharded = Layout<f32, Dims<Dim<token>, Dim<hidden, dynamic, tp>>>;

constexpr OutputProjectionCost row_parallel(OutputProjectionSizes const& of, SentBytes stream) {
    double const weights =
        static_cast<double>(per_rank("width", of.width, "tp", of.tp)) * static_cast<double>(of.hidden);
    return {stream, weights, 0, 2 * static_cast<double>(of.tokens) * weights};
}

template <class From, class To>
constexpr SentBytes stream_between(OutputProjectionSizes const& of, std::int64_t columns) {
    return sent_between<From, To>({static_cast<std::size_t>(of.tokens), static_cast<std::size_t>(columns)},
                                  of.element_bytes, Mesh<Axis<tp>>(static_cast<int>(of.tp)));
}

} // namespace detail

/// The weight's rows sharded; the partial products are all-reduced and each rank takes its slice of the tokens.
constexpr OutputProjectionCost project_all_reduce_slice(OutputProjectionSizes const& of) {
    using namespace detail;
    return row_parallel(of, stream_between<SummandStream, WholeStream>(of, of.hidden) +
                                stream_between<WholeStream, ShardedStream>(of, of.hidden));
}

/// The same in one plan, from partial to sharded: a reduce-scatter. The slice was half of what the all-reduce sent.
constexpr OutputProjectionCost project_reduce_scatter(OutputProjectionSizes const& of) {
    using namespace detail;
    return row_parallel(of, stream_between<SummandStream, ShardedStream>(of, of.hidden));
}

/// Heads are exchanged for tokens first and the weight is whole on every rank, which uses it for its own tokens: its
/// gradient is partial over tp.
constexpr OutputProjectionCost all_to_all_project(OutputProjectionSizes const& of) {
    using namespace detail;
    double const tokens = static_cast<double>(per_rank("tokens", of.tokens, "tp", of.tp));
    double const weights = static_cast<double>(of.width) * static_cast<double>(of.hidden);
    return {stream_between<HeadsSharded, ShardedStream>(of, of.width), weights,
            all_reduce_bytes(weights * of.gradient_bytes, of.tp), 2 * tokens * weights};
}

} // namespace pentad::planner
