// The layouts of a transformer's residual stream, and of what tensor-parallel products
// take and give.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/resharded.hpp>

namespace pentad {

/// The residual stream: every rank of tp holds the same activations and does the same work on them.
template <class T>
using InvariantStream =
    Layout<T, Dims<Dim<ml::batch, dynamic, ml::dp>, Dim<ml::seq, dynamic, ml::cp>, Dim<ml::hidden>>>;
/// The residual stream under sequence parallelism: tp shards the sequence once more.
template <class T>
using SequenceStream =
    Layout<T, Dims<Dim<ml::batch, dynamic, ml::dp>, Dim<ml::seq, dynamic, ml::cp, ml::tp>, Dim<ml::hidden>>>;

/// The axes of tensor parallelism on a grid, the factors of tp. Whether `first` and `second` are depth and rows or rows
/// and depth depends on the stream.
struct TensorGrid {
    using first = outer<ml::tp>;
    using second = outer<inner<ml::tp>>;
    using columns = inner<inner<ml::tp>>; ///< shard the heads, the width of an MLP and the vocabulary
};
/// The residual stream of 2D and 2.5D tensor parallelism (Xu et al. 2021, arXiv 2104.05343; Wang et al. 2021, arXiv
/// 2105.14500): `first` is the depth, whose ranks share the batch and hold the same weights, and `second` the rows. In
/// 2D the depth is 1.
template <class T>
using GridStream = Layout<T, Dims<Dim<ml::batch, dynamic, ml::dp, TensorGrid::first, TensorGrid::second>,
                                  Dim<ml::seq, dynamic, ml::cp>, Dim<ml::hidden, dynamic, TensorGrid::columns>>>;
/// The residual stream of 3D tensor parallelism (Bian et al. 2021, arXiv 2105.14450): `first` are the rows and `second`
/// the depth; inside a layer depth and columns change places.
template <class T>
using CubeStream = Layout<T, Dims<Dim<ml::batch, dynamic, ml::dp, TensorGrid::first, TensorGrid::columns>,
                                  Dim<ml::seq, dynamic, ml::cp>, Dim<ml::hidden, dynamic, TensorGrid::second>>>;

namespace detail {

template <class Stream>
inline constexpr bool is_on_grid = false;
template <class T>
inline constexpr bool is_on_grid<GridStream<T>> = true;
template <class T>
inline constexpr bool is_on_grid<CubeStream<T>> = true;

template <class Stream>
struct Gathered {
    using type = unsharded_t<Stream, ml::tp>;
};
template <class Stream>
    requires(is_on_grid<Stream>)
struct Gathered<Stream> {
    using type =
        unsharded_t<unsharded_t<unsharded_t<Stream, TensorGrid::first>, TensorGrid::second>, TensorGrid::columns>;
};

} // namespace detail

/// Whether a stream is of tensor parallelism on a grid.
template <class Stream>
concept StreamOnGrid = detail::is_on_grid<Stream>;
/// Whether the layout of a stream is one on a grid: ranks share out its width.
constexpr bool is_on_grid(LayoutValue const& stream) { return !stream.dimensions[2].axes.empty(); }
/// Whether that is the grid of three dimensions.
constexpr bool is_cube(LayoutValue const& stream) {
    return stream.dimensions[2].axes.contains(TensorGrid::second::name);
}
/// What layers on a grid compute inside: tokens, and dimensions that `columns` shard.
template <class T, class... D>
using InsideGrid = Layout<T, Dims<Dim<ml::batch, dynamic, ml::dp, TensorGrid::first, TensorGrid::second>,
                                  Dim<ml::seq, dynamic, ml::cp>, D...>>;

/// A stream whose tokens and activations are the same on every rank of tp, which use them for different work: what
/// tensor-parallel products of the other streams take.
template <class Stream>
using gathered_stream_t = typename detail::Gathered<Stream>::type;
/// What tensor-parallel products give.
template <class Stream>
using partial_stream_t = summands_t<Stream, ml::tp>;
/// The stream with its tokens dealt to the ranks of tp as well: under sequence parallelism itself.
template <class Stream>
using dealt_stream_t = resharded_t<invariant_t<gathered_stream_t<Stream>>, ml::tp, ml::seq>;
template <class T>
using GatheredStream = gathered_stream_t<InvariantStream<T>>;
template <class T>
using PartialStream = partial_stream_t<InvariantStream<T>>;

namespace detail {
template <class L, class T, class... States>
struct OfTokens;
template <class Old, class Batch, class Seq, class... Rest, class... OldStates, class T, class... States>
struct OfTokens<Layout<Old, Dims<Batch, Seq, Rest...>, OldStates...>, T, States...> {
    using type = Layout<T, Dims<Batch, Seq>, States...>;
};
} // namespace detail

/// A value of type T for each token [batch, seq] of a layout: sharded as its tokens are.
template <class L, class T, class... States>
using values_of_tokens_t = typename detail::OfTokens<L, T, States...>::type;
/// A value of type T for each token [batch, seq] of a stream: its batch and sequence are dealt as the tokens are, the
/// same for all ranks of tp.
template <class Stream, class T, class... States>
using token_values_t = values_of_tokens_t<gathered_stream_t<Stream>, T, States...>;

/// token_values_t for a stream whose layout is a value: of Stream::value it is token_values_t<Stream, T>::value.
template <class T>
constexpr LayoutValue token_values(LayoutValue const& stream) {
    LayoutValue values;
    values.element = Element<T>::name;
    values.element_size = sizeof(T);
    values.rank = 2;
    for (std::size_t d = 0; d < 2; ++d) {
        values.dimensions[d] = stream.dimensions[d];
        values.dimensions[d].axes = {};
        for (auto const axis : stream.dimensions[d].axes)
            if (whole_axis_name(axis) != ml::tp::name) values.dimensions[d].axes.push(axis);
    }
    return values;
}

} // namespace pentad
