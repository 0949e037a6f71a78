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
    Layout<T, Dims<Dim<ml::batch, dynamic, ml::dp, ml::ep>, Dim<ml::seq, dynamic, ml::cp>, Dim<ml::hidden>>>;
/// The residual stream under sequence parallelism: tp shards the sequence once more.
template <class T>
using SequenceStream =
    Layout<T, Dims<Dim<ml::batch, dynamic, ml::dp, ml::ep>, Dim<ml::seq, dynamic, ml::cp, ml::tp>, Dim<ml::hidden>>>;

/// What tensor-parallel products take of a stream: every rank of tp holds the same activations and uses them for
/// different work.
template <class Stream>
using gathered_stream_t = unsharded_t<Stream, ml::tp>;
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

/// A value of type T for each token [batch, seq] of a stream: its batch and sequence are dealt as the tokens are, the
/// same for all ranks of tp.
template <class Stream, class T, class... States>
using token_values_t = typename detail::OfTokens<gathered_stream_t<Stream>, T, States...>::type;

} // namespace pentad
