// K and V are gathered over cp, and their gradients, partial over cp, are reduce-scattered: both are redistributions
// (Llama 3: Dubey et al. 2024, section 3.3.2).
#pragma once

#include <pentad/context/detail/block_strategy.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <cstddef>
#include <utility>

namespace pentad::context {

namespace detail {

template <class Query, class Key, class Exec>
class AllGatherMover {
  public:
    using A = accumulator_t<typename Query::element>;
    using Whole = unsharded_t<Key, cp>;
    using Keys = Pair<Key, Exec>;
    using Gradients = PairGradient<Key, Exec>;

    static void attend(BlockForward<Query, Key, Exec>& attention, Keys const& keys, std::size_t slice) {
        auto const key = redistribute<Whole>(keys.key), value = redistribute<Whole>(keys.value);
        for_each_shard(attention.blocks(), keys, [&](std::size_t theirs, Segment const& shard) {
            attention.add(theirs, part(key.view(), shard), part(value.view(), shard), slice);
        });
    }
    static void add_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& keys, Gradients& gradients,
                              std::size_t slice) {
        Pair<Whole, Exec> const whole{redistribute<Whole>(keys.key), redistribute<Whole>(keys.value)};
        auto gathered = whole.template zeros<with_element_t<dual_t<Whole>, A>>();
        for_each_shard(attention.blocks(), keys, [&](std::size_t theirs, Segment const& shard) {
            attention.add(theirs, part(whole.key.view(), shard), part(whole.value.view(), shard),
                          part(gathered.key.view(), shard), part(gathered.value.view(), shard), slice);
        });
        using Gradient = typename Gradients::layout;
        Gradients own{redistribute<Gradient>(std::move(gathered.key)),
                      redistribute<Gradient>(std::move(gathered.value))};
        if (gradients.key.empty())
            gradients = std::move(own);
        else
            own.add_to(gradients);
    }

  private:
    /// f(shard, where it lies in the gathered sequence), this rank's own first, as the ring does.
    template <class F>
    static void for_each_shard(PassBlocks<Exec> const& blocks, Keys const& keys, F&& f) {
        std::size_t const n = blocks.shard_count(), length = keys.key.local()[1];
        for (std::size_t step = 0; step < n; ++step) {
            std::size_t const theirs = (blocks.mine() + n - step) % n;
            f(theirs, Segment{0, theirs * length, length});
        }
    }
};

} // namespace detail

struct AllGather {
    template <class Query, class Key, class Exec>
    class on : public detail::BlockStrategy<Query, Key, Exec, detail::AllGatherMover<Query, Key, Exec>> {
      public:
        explicit on(LayerSetup<Exec> const& setup, model::Attention const& part)
            : on::BlockStrategy({setup, part, cp::name}, {}) {}
    };
};

} // namespace pentad::context
