// The linear maps of a tensor-parallel layer for a stream: what shards heads and widths, and the projections between
// the stream and what the layer computes inside. In one dimension these are local products beside redistributions; on a
// grid they are products of distributed matrices.
#pragma once

#include <pentad/layers/grid_projection.hpp>
#include <pentad/layers/projection.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/streams.hpp>

namespace pentad {

/// In one dimension (Shoeybi et al. 2019, arXiv 1909.08053).
template <class Stream, class Communication, class Exec>
struct TensorParallel {
    using T = typename Stream::element;
    using columns = ml::tp;           ///< shards heads and widths
    using kv_columns = outer<ml::tp>; ///< and the heads of keys and values
    using input_layout = typename Communication::template boundary<Stream, gathered_stream_t<Stream>>;
    using output_layout = typename Communication::template boundary<Stream, partial_stream_t<Stream>>;
    /// From the stream to dimensions `Out`.
    template <class... Out>
    using InputMap = Linear<gathered_stream_t<Stream>, Layout<T, Dims<Out..., Dim<ml::hidden>>>, sizeof...(Out), Exec>;
    template <class... Maps>
    using Input = InputProjection<Communication, input_layout, Maps...>;
    /// From `Inside`, of which the last dimensions are `In`, to the stream.
    template <class Inside, class... In>
    using Output = OutputProjection<Communication, Linear<Inside, Layout<T, Dims<Dim<ml::hidden>, In...>>, 1, Exec>,
                                    output_layout>;
};

namespace detail {

/// How weights lie on the grid: from the stream, hidden is sharded as `in`; to the stream as `out`, and the width that
/// `columns` shard inside as `inside`.
template <class Stream>
struct GridWeights;
template <class T>
struct GridWeights<GridStream<T>> {
    using in = Dim<ml::hidden, dynamic, TensorGrid::second>;
    using out = Dim<ml::hidden, dynamic, TensorGrid::columns>;
    template <class First>
    using inside = typename WithAxes<First, AxisSet<TensorGrid::second>>::type;
};
template <class T>
struct GridWeights<CubeStream<T>> {
    using in = Dim<ml::hidden, dynamic, TensorGrid::second, TensorGrid::first>;
    using out = Dim<ml::hidden, dynamic, TensorGrid::second>;
    template <class First>
    using inside = typename WithAxes<First, AxisSet<TensorGrid::columns, TensorGrid::first>>::type;
};

} // namespace detail

/// On a grid. Products overlap their own communication with computation: `Communication` is not used.
template <StreamOnGrid Stream, class Communication, class Exec>
struct TensorParallel<Stream, Communication, Exec> {
    using T = typename Stream::element;
    using Weights = detail::GridWeights<Stream>;
    using columns = TensorGrid::columns;
    using kv_columns = TensorGrid::columns;
    using input_layout = Stream;
    using output_layout = Stream;
    template <class... Out>
    using InputMap =
        GridMap<Stream, Layout<T, Dims<Out..., typename Weights::in>>, sizeof...(Out), InsideGrid<T, Out...>, Exec>;
    template <class... Maps>
    using Input = GridProjection<Maps...>;
    template <class Inside, class First, class... In>
    using Output = GridOutput<
        GridMap<Inside, Layout<T, Dims<typename Weights::out, typename Weights::template inside<First>, In...>>, 1,
                Stream, Exec>>;
};

} // namespace pentad
