// Ring attention: keys and values travel round a ring of ranks, and in the backward pass their gradients (Liu et al.
// 2023, arXiv 2310.01889).
#pragma once

#include <pentad/context/cached_attention.hpp>
#include <pentad/context/detail/block_strategy.hpp>
#include <pentad/context/detail/ring_pass.hpp>
#include <pentad/layout/ml.hpp>

#include <cstddef>

namespace pentad::context {

using namespace ml;

namespace detail {

template <class Query, class Key, class Exec, class Communication, class Axis>
struct RingMover {
    using Pass = RingPass<Query, Key, Exec, Communication>;

    static void attend(BlockForward<Query, Key, Exec>& attention, Pair<Key, Exec> const& keys, std::size_t slice) {
        pass(keys).attend(attention, keys, slice);
    }
    static void add_gradients(BlockBackward<Query, Key, Exec>& attention, Pair<Key, Exec> const& keys,
                              PairGradient<Key, Exec>& gradients, std::size_t slice) {
        if (gradients.key.empty()) gradients = keys.template zeros<typename PairGradient<Key, Exec>::layout>();
        pass(keys).add_gradients(attention, keys, gradients, slice);
    }

  private:
    static Pass pass(Pair<Key, Exec> const& keys) {
        return {keys.key.context().communicators().along(AxisNames(Axis::name)), 0};
    }
};

} // namespace detail

/// Sends per rank: forward n-1 blocks of K and V; backward the same, and n-1 blocks of dK and dV in accumulators; less
/// where the ranks that a block would still pass see nothing of it.
/// @tparam Communication Overlap<Chunks>: a block travels in pieces across a network; Blocking: computation waits
/// @tparam Axis cp, or the factor of it over which the ring goes
template <class Communication = Overlap<4>, class Axis = cp>
struct Ring : KeepsKeys {
    template <class Query, class Key, class Exec>
    class on
        : public detail::BlockStrategy<Query, Key, Exec, detail::RingMover<Query, Key, Exec, Communication, Axis>> {
      public:
        explicit on(LayerSetup<Exec> const& setup, model::Attention const& part)
            : on::BlockStrategy({setup, part, Axis::name}, {}) {}
    };
};

} // namespace pentad::context
