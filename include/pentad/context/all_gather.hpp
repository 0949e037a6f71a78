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

    explicit AllGatherMover(BlockPositions const& positions) : positions_(positions) {}

    void attend(BlockForward<Query, Key, Exec>& attention, Keys const& keys, std::size_t ahead) const {
        auto const key = redistribute<Whole>(keys.key), value = redistribute<Whole>(keys.value);
        for_each_shard([&](std::size_t theirs, Segment const& shard) {
            attention.add(theirs, part(key.view(), shard), part(value.view(), shard), {}, ahead);
        });
    }
    void add_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& keys, Gradients& gradients,
                       std::size_t ahead) const {
        Pair<Whole, Exec> const whole{redistribute<Whole>(keys.key), redistribute<Whole>(keys.value)};
        auto gathered = whole.template zeros<with_element_t<dual_t<Whole>, A>>();
        for_each_shard([&](std::size_t theirs, Segment const& shard) {
            attention.add(theirs, part(whole.key.view(), shard), part(whole.value.view(), shard),
                          part(gathered.key.view(), shard), part(gathered.value.view(), shard), {}, ahead);
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
    void for_each_shard(F&& f) const {
        std::size_t const n = positions_.partition.shards(), length = positions_.partition.local_extent();
        for (std::size_t step = 0; step < n; ++step) {
            std::size_t const theirs = (positions_.mine + n - step) % n;
            f(theirs, Segment{0, theirs * length, length});
        }
    }

    BlockPositions positions_;
};

} // namespace detail

struct AllGather {
    template <class Query, class Key, class Exec>
    class on : public detail::BlockStrategy<Query, Key, Exec, detail::AllGatherMover<Query, Key, Exec>> {
      public:
        explicit on(LayerSetup<Exec> const& setup) : on(BlockPositions(setup, cp::name)) {}

      private:
        explicit on(BlockPositions const& positions)
            : on::BlockStrategy(positions, detail::AllGatherMover<Query, Key, Exec>(positions)) {}
    };
};

} // namespace pentad::context
