// The common part of the strategies that move blocks of keys and values: slices of the sequences, saved state, order of
// computation.
#pragma once

#include <pentad/context/detail/blocks.hpp>
#include <pentad/context/detail/pair.hpp>

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

/// `Mover` brings keys to the queries of all ranks: attend(forward, keys, ahead) calls forward.add with each block of
/// them, add_gradients(backward, keys, gradients, ahead) calls backward.add, and adds to the gradients of this rank's
/// keys, which it allocates if they are empty. The slice of the queries begins `ahead` positions after that of the
/// keys.
template <class Query, class Key, class Exec, class Mover>
class BlockStrategy {
  public:
    using Keys = Pair<Key, Exec>;
    using Gradients = PairGradient<Key, Exec>;
    using Saved = context::Saved<Query, Key, Exec>;
    using Slices = std::vector<Slice<Key, Exec>>;

    BlockStrategy(BlockPositions const& positions, Mover mover) : positions_(positions), mover_(std::move(mover)) {}

    /// The attention of these queries.
    /// @param slices of the sequences, null where the schedule cuts none; `index` is the current one
    Tensor<Query, Exec> forward(Tensor<Query, Exec> query, Tensor<Key, Exec> key, Tensor<Key, Exec> value, Saved& saved,
                                Slices* slices = nullptr, std::size_t index = 0) const {
        saved.query = std::move(query);
        saved.key = std::move(key);
        saved.value = std::move(value);
        if (slices != nullptr) {
            if (slices->size() <= index) slices->resize(index + 1);
            (*slices)[index].keys = {saved.key, saved.value}; // a replay may find gradients there
        }
        return output_again(saved, slices, index);
    }
    /// Frees what output_again() can compute from the rest.
    static void drop_output(Saved& saved) { saved.lse = {}; }
    Tensor<Query, Exec> output_again(Saved& saved, Slices const* slices, std::size_t index) const {
        std::size_t const earlier = slices != nullptr ? index : 0;
        if (positions_.is_one_block() && earlier == 0) return BlockForward<Query, Key, Exec>::at_once(saved);
        BlockForward<Query, Key, Exec> attention(positions_, saved);
        mover_.attend(attention, Keys{saved.key, saved.value}, 0);
        for (std::size_t i = 0; i < earlier; ++i)
            mover_.attend(attention, (*slices)[i].keys, positions_.ahead(earlier - i));
        return attention.finish();
    }
    /// Calls receive(dq, dk, dv), in accumulators; adds to the gradients of the slices before. Nothing is saved then.
    /// @param output what forward() returned
    template <class Receive>
    void backward(Saved& saved, Tensor<Query, Exec> const& output, Tensor<dual_t<Query>, Exec> const& dy,
                  Receive&& receive, Slices* slices = nullptr, std::size_t index = 0) const {
        backward(saved, delta_of(output, dy), dy, receive, slices, index);
    }
    /// The same, for an output that is elsewhere.
    template <class Receive>
    void backward(Saved& saved, Delta<Query, Exec> const& delta, Tensor<dual_t<Query>, Exec> const& dy,
                  Receive&& receive, Slices* slices, std::size_t index) const {
        BlockBackward<Query, Key, Exec> attention(positions_, saved, delta, dy);
        Gradients own;
        if (slices != nullptr) {
            for (std::size_t i = 0; i < index; ++i)
                mover_.add_gradients(attention, (*slices)[i].keys, (*slices)[i].gradients, positions_.ahead(index - i));
            own = std::move((*slices)[index].gradients);
        }
        mover_.add_gradients(attention, Keys{saved.key, saved.value}, own, 0);
        if (slices != nullptr) (*slices)[index] = {};
        receive(attention.dquery(), std::move(own.key), std::move(own.value));
        saved = {};
    }

  private:
    BlockPositions positions_;
    Mover mover_;
};

} // namespace pentad::context::detail
