// The second strategy: K and V are gathered over cp, and their gradients, partial over cp, are
// reduce-scattered: both are redistributions.
#pragma once

#include <pentad/context/detail/blocks.hpp>
#include <pentad/kernels/elementwise.hpp>

#include <cstddef>
#include <span>
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
        using Slice = context::Slice<Key, Exec>;

        explicit on(LayerSetup<Exec> const& setup) : positions_(setup) {}

        /// The output for saved.query, saved.key and saved.value, and the keys and values of the slices before.
        Tensor<Query, Exec> forward(Saved& saved, std::span<Slice const> earlier = {}) const {
            if (positions_.is_one_block() && earlier.empty()) return BlockForward<Query, Key, Exec>::at_once(saved);
            BlockForward<Query, Key, Exec> attention(positions_, saved);
            auto const add = [&](Tensor<Key, Exec> const& own_key, Tensor<Key, Exec> const& own_value,
                                 std::size_t ahead) {
                auto const key = redistribute<Whole>(own_key), value = redistribute<Whole>(own_value);
                for_each_shard([&](std::size_t theirs, Segment const& shard) {
                    attention.add(theirs, detail::part(key.view(), shard), detail::part(value.view(), shard), {},
                                  ahead);
                });
            };
            add(saved.key, saved.value, 0);
            for (std::size_t i = 0; i < earlier.size(); ++i)
                add(earlier[i].key, earlier[i].value, positions_.ahead(earlier.size() - i));
            return attention.finish();
        }

        /// Calls receive(dq, dk, dv), in accumulators; adds to the gradients of the slices before.
        template <class Receive>
        void backward(Saved& saved, Tensor<dual_t<Query>, Exec> const& dy, Receive&& receive,
                      std::span<Slice> earlier = {}) const {
            auto const& context = dy.context();
            BlockBackward<Query, Key, Exec> attention(positions_, saved, dy);
            /// The gradients of a slice's keys and values.
            auto const gradients = [&](Tensor<Key, Exec> const& own_key, Tensor<Key, Exec> const& own_value,
                                       std::size_t ahead) {
                auto const key = redistribute<Whole>(own_key), value = redistribute<Whole>(own_value);
                Tensor<WholeGradient, Exec> dkey(context, key.extents()), dvalue(context, key.extents());
                dkey.clear();
                dvalue.clear();
                for_each_shard([&](std::size_t theirs, Segment const& shard) {
                    attention.add(theirs, detail::part(key.view(), shard), detail::part(value.view(), shard),
                                  detail::part(dkey.view(), shard), detail::part(dvalue.view(), shard), {}, ahead);
                });
                return std::pair(redistribute<KeyGradient>(std::move(dkey)),
                                 redistribute<KeyGradient>(std::move(dvalue)));
            };
            for (std::size_t i = 0; i < earlier.size(); ++i) {
                auto& slice = earlier[i];
                auto const [dkey, dvalue] = gradients(slice.key, slice.value, positions_.ahead(earlier.size() - i));
                slice.begin_gradients();
                kernels::add<A>(context.exec(), dkey.flat(), slice.dkey.flat());
                kernels::add<A>(context.exec(), dvalue.flat(), slice.dvalue.flat());
            }
            auto [dkey, dvalue] = gradients(saved.key, saved.value, 0);
            receive(attention.dquery(), std::move(dkey), std::move(dvalue));
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
};

} // namespace pentad::context
