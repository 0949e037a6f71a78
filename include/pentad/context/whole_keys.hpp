// Attention of a rank's queries to keys and values of the whole sequence, which every rank of cp has already: latent
// attention gathers the latent vectors that they are made from, which are smaller.
#pragma once

#include <pentad/context/cached_attention.hpp>
#include <pentad/context/detail/block_strategy.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/documents.hpp>

#include <cstddef>

namespace pentad::context {

namespace detail {

/// Keys lie as a gather over cp leaves them: one rank's tokens behind those of the one before.
template <class Query, class Key, class Exec>
struct WholeMover {
    using Keys = Pair<Key, Exec>;
    using Gradients = PairGradient<Key, Exec>;

    static void attend(BlockForward<Query, Key, Exec>& attention, Keys const& keys, std::size_t slice) {
        for_each_shard(keys, attention.blocks(), [&](std::size_t theirs, Segment const& shard) {
            attention.add(theirs, part(keys.key.array(), shard), part(keys.value.array(), shard), slice);
        });
    }
    /// The gradients of the whole sequence: partial over cp, since each rank has its own queries.
    static void add_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& keys, Gradients& gradients,
                              std::size_t slice) {
        if (gradients.key.empty()) gradients = keys.template zeros<typename Gradients::layout>();
        for_each_shard(keys, attention.blocks(), [&](std::size_t theirs, Segment const& shard) {
            attention.add(theirs, part(keys.key.array(), shard), part(keys.value.array(), shard),
                          part(gradients.key.array(), shard), part(gradients.value.array(), shard), slice);
        });
    }

  private:
    template <class F>
    static void for_each_shard(Keys const& keys, PassBlocks<Exec> const& blocks, F&& f) {
        std::size_t const length = keys.key.local()[1] / blocks.shard_count();
        for (std::size_t theirs = 0; theirs < blocks.shard_count(); ++theirs)
            f(theirs, Segment{0, theirs * length, length});
    }
};

} // namespace detail

/// Sends nothing. Key is a layout of whole sequences, which may be replicated over cp.
struct WholeKeys : KeepsKeys {
    template <class Query, class Key, class Exec>
    class on : public detail::BlockStrategy<Query, Key, Exec, detail::WholeMover<Query, Key, Exec>> {
      public:
        /// @param scale of the scores
        explicit on(LayerSetup<Exec> const& setup, Sight const& sight, double scale)
            : on::BlockStrategy({setup, sight, scale}, {}) {}
    };
};

} // namespace pentad::context
