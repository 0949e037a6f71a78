// Room: context. The second strategy: K and V are gathered over cp, and their gradients, partial over cp, are
// reduce-scattered: both are redistributions.
#pragma once

#include <pentad/context/blocks.hpp>

#include <cstddef>
#include <utility>

namespace pentad::context {

struct AllGather {
    template <class Query, class Key, class Exec>
    class on {
      public:
        using T = typename Query::element;
        using A = accumulator_t<T>;
        using Whole = unsharded_t<Key, cp>;
        using KeyGradient = with_element_t<dual_t<Key>, A>;
        using WholeGradient = with_element_t<dual_t<Whole>, A>;

        using Saved = context::Saved<Query, Key, Exec>;

        explicit on(Setup<Exec> const& setup) : placing_(setup) {}

        /// The output for saved.query, saved.key and saved.value.
        Tensor<Query, Exec> forward(Saved& saved) const {
            if (placing_.is_one_block()) return BlockForward<Query, Key, Exec>::at_once(saved);
            auto const key = redistribute<Whole>(saved.key), value = redistribute<Whole>(saved.value);
            BlockForward<Query, Key, Exec> attention(placing_, saved);
            for_each_shard([&](std::size_t theirs, Segment const& shard) {
                attention.add(theirs, detail::part(key.view(), shard), detail::part(value.view(), shard));
            });
            return attention.finish();
        }

        /// Calls receive(dq, dk, dv), in accumulators.
        template <class Receive>
        void backward(Saved& saved, Tensor<dual_t<Query>, Exec> const& dy, Receive&& receive) const {
            auto const& context = dy.context();
            auto const key = redistribute<Whole>(saved.key), value = redistribute<Whole>(saved.value);
            Tensor<WholeGradient, Exec> dkey(context, key.extents()), dvalue(context, key.extents());
            dkey.clear();
            dvalue.clear();
            BlockBackward<Query, Key, Exec> attention(placing_, saved, dy);
            for_each_shard([&](std::size_t theirs, Segment const& shard) {
                attention.add(theirs, detail::part(key.view(), shard), detail::part(value.view(), shard),
                              detail::part(dkey.view(), shard), detail::part(dvalue.view(), shard));
            });
            receive(attention.dquery(), redistribute<KeyGradient>(std::move(dkey)),
                    redistribute<KeyGradient>(std::move(dvalue)));
        }

      private:
        /// f(shard, where it lies in the gathered sequence), this rank's own first, as the ring does.
        template <class F>
        void for_each_shard(F&& f) const {
            std::size_t const n = placing_.partition.shards(), length = placing_.partition.local_extent();
            for (std::size_t step = 0; step < n; ++step) {
                std::size_t const theirs = (placing_.mine + n - step) % n;
                f(theirs, Segment{0, theirs * length, length});
            }
        }

        Placing placing_;
    };
};

} // namespace pentad::context
