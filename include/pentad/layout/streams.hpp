// The layouts of a transformer's residual stream, and of what tensor-parallel products
// take and give.
#pragma once

#include <pentad/layout/layout.hpp>

namespace pentad {

/// The residual stream: every rank of tp holds the same activations and does the same work on them.
template <class T>
using InvariantStream = Layout<T, Dims<Dim<batch, dynamic, dp, ep>, Dim<seq, dynamic, cp>, Dim<hidden>>>;
/// The residual stream under sequence parallelism: tp shards the sequence once more.
template <class T>
using SequenceStream = Layout<T, Dims<Dim<batch, dynamic, dp, ep>, Dim<seq, dynamic, cp, tp>, Dim<hidden>>>;
/// What tensor-parallel products take: every rank of tp holds the same activations and uses them for different work.
template <class T>
using GatheredStream = Layout<T, Dims<Dim<batch, dynamic, dp, ep>, Dim<seq, dynamic, cp>, Dim<hidden>>, Replicated<tp>>;
/// What tensor-parallel products give.
template <class T>
using PartialStream = Layout<T, Dims<Dim<batch, dynamic, dp, ep>, Dim<seq, dynamic, cp>, Dim<hidden>>, Partial<tp>>;

} // namespace pentad
