// The common part of the strategies that move blocks of keys and values: slices of the sequences, saved state, order of
// computation.
#pragma once

#include <pentad/context/detail/blocks.hpp>
#include <pentad/context/detail/pair.hpp>
#include <pentad/layers/layer.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace pentad::context::detail {

/// This rank's keys and values of a slice of the sequences, and what later slices add to their gradients.
template <class Key, class Exec>
struct Slice {
    Pair<Key, Exec> keys{};
    PairGradient<Key, Exec> gradients{};
};

/// `Mover` brings keys to the queries of all ranks: attend(forward, keys, slice) calls forward.add with each block of
/// them, add_gradients(backward, keys, gradients, slice) calls backward.add, and adds to the gradients of this rank's
/// keys, which it allocates if they are empty. `slice` is that of the keys.
template <class Query, class Key, class Exec, class Mover>
class BlockStrategy {
  public:
    using Keys = Pair<Key, Exec>;
    using Gradients = PairGradient<Key, Exec>;
    using Saved = context::Saved<Query, Key, Exec>;
    using Slices = std::vector<Slice<Key, Exec>>;
    using Part = AttentionPass<Slices, Query, Exec>;
    using SinksGradient = Tensor<sinks_gradient_t<Query>, Exec>;

    BlockStrategy(BlockPositions positions, Mover mover) : positions_(std::move(positions)), mover_(std::move(mover)) {}

    /// The attention of these queries.
    Tensor<Query, Exec> forward(Tensor<Query, Exec> query, Tensor<Key, Exec> key, Tensor<Key, Exec> value, Saved& saved,
                                Part const& pass = {}) const {
        saved.query = std::move(query);
        saved.key = std::move(key);
        saved.value = std::move(value);
        if (auto* const slices = pass.slices; slices != nullptr) {
            if (slices->size() <= pass.index) slices->resize(pass.index + 1);
            (*slices)[pass.index].keys = {saved.key, saved.value}; // a replay may find gradients there
        }
        return output_again(saved, pass);
    }
    /// Frees what output_again() can compute from the rest.
    static void drop_output(Saved& saved) { saved.lse = {}; }
    Tensor<Query, Exec> output_again(Saved& saved, Part const& pass = {}) const {
        std::size_t const current = pass.slices != nullptr ? pass.index : 0;
        PassBlocks<Exec> const blocks(positions_, pass.map, current);
        if (blocks.is_one_block() && current == 0)
            return BlockForward<Query, Key, Exec>::at_once(blocks, saved, pass.sinks);
        BlockForward<Query, Key, Exec> attention(blocks, saved);
        mover_.attend(attention, Keys{saved.key, saved.value}, current);
        for (std::size_t i = 0; i < current; ++i) mover_.attend(attention, (*pass.slices)[i].keys, i);
        return attention.finish(pass.sinks);
    }
    /// Calls receive(dq, dk, dv), in accumulators; adds to the gradients of the slices before. Nothing is saved then.
    /// @param output what forward() returned
    /// @return the gradient of the sinks; empty where there are none
    template <class Receive>
    SinksGradient backward(Saved& saved, Tensor<Query, Exec> const& output, Tensor<dual_t<Query>, Exec> const& dy,
                           Receive&& receive, Part const& pass = {}) const {
        return backward(saved, delta_of(output, dy), dy, receive, pass);
    }
    /// The backward pass of an output that is elsewhere.
    template <class Receive>
    SinksGradient backward(Saved& saved, Delta<Query, Exec> delta, Tensor<dual_t<Query>, Exec> const& dy,
                           Receive&& receive, Part const& pass = {}) const {
        std::size_t const current = pass.slices != nullptr ? pass.index : 0;
        PassBlocks<Exec> const blocks(positions_, pass.map, current);
        BlockBackward<Query, Key, Exec> attention(blocks, saved, std::move(delta), dy);
        Gradients own;
        for (std::size_t i = 0; i < current; ++i)
            mover_.add_gradients(attention, (*pass.slices)[i].keys, (*pass.slices)[i].gradients, i);
        if (pass.slices != nullptr) own = std::move((*pass.slices)[current].gradients);
        mover_.add_gradients(attention, Keys{saved.key, saved.value}, own, current);
        if (pass.slices != nullptr) (*pass.slices)[current] = {};
        auto dsinks = attention.dsinks(pass.sinks);
        receive(attention.dquery(), std::move(own.key), std::move(own.value));
        saved = {};
        return dsinks;
    }

  private:
    BlockPositions positions_;
    Mover mover_;
};

} // namespace pentad::context::detail
