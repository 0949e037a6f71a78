// Room: context. Ring attention: keys and values travel round the ring of cp while each rank attends to the block it
// holds; in the backward pass their gradients travel along and come home (Liu et al. 2023, arXiv 2310.01889).
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/context/blocks.hpp>

#include <cstddef>
#include <utility>

namespace pentad::context {

/// Sends per rank: forward (n-1) blocks of K and V; backward the same, and n blocks of dK and dV in accumulators.
struct Ring {
    template <class Query, class Key, class Exec>
    class on {
      public:
        using T = typename Query::element;
        using A = accumulator_t<T>;
        using KeyGradient = with_element_t<dual_t<Key>, A>;

        using Saved = context::Saved<Query, Key, Exec>;

        explicit on(Setup<Exec> const& setup) : placing_(setup) {}

        /// The output for saved.query, saved.key and saved.value.
        Tensor<Query, Exec> forward(Saved& saved) const {
            if (placing_.is_one_block()) return BlockForward<Query, Key, Exec>::at_once(saved);
            auto const& context = saved.query.context();
            auto const& comm = context.communicators().along(AxisNames(cp::name));
            std::size_t const n = placing_.partition.shards();
            BlockForward<Query, Key, Exec> attention(placing_, saved);
            auto key = saved.key, value = saved.value;
            for (std::size_t step = 0; step < n; ++step) {
                std::size_t const theirs = (placing_.mine + n - step) % n;
                if (step + 1 == n) {
                    attention.add(theirs, key.view(), value.view());
                    break;
                }
                Tensor<Key, Exec> next_key(context, key.extents()), next_value(context, key.extents());
                auto shift_key = comm::start_ring_shift(context.exec(), comm, key.flat(), next_key.flat(), 1, 0);
                auto shift_value = comm::start_ring_shift(context.exec(), comm, value.flat(), next_value.flat(), 1, 1);
                attention.add(theirs, key.view(), value.view());
                shift_key.wait();
                shift_value.wait();
                key = std::move(next_key);
                value = std::move(next_value);
            }
            return attention.finish();
        }

        /// Calls receive(dq, dk, dv), in accumulators.
        template <class Receive>
        void backward(Saved& saved, Tensor<dual_t<Query>, Exec> const& dy, Receive&& receive) const {
            auto const& context = dy.context();
            auto const& exec = context.exec();
            auto const& comm = context.communicators().along(AxisNames(cp::name));
            std::size_t const n = placing_.partition.shards();
            BlockBackward<Query, Key, Exec> attention(placing_, saved, dy);
            auto key = saved.key, value = saved.value;
            Tensor<KeyGradient, Exec> dkey(context, key.extents()), dvalue(context, key.extents());
            dkey.clear();
            dvalue.clear();
            for (std::size_t step = 0; step < n; ++step) {
                std::size_t const theirs = (placing_.mine + n - step) % n;
                if (n == 1) {
                    attention.add(theirs, key.view(), value.view(), dkey.view(), dvalue.view());
                    break;
                }
                bool const last = step + 1 == n;
                Tensor<Key, Exec> next_key, next_value;
                if (last) {
                    attention.add(theirs, key.view(), value.view(), dkey.view(), dvalue.view());
                } else {
                    next_key = {context, key.extents()};
                    next_value = {context, key.extents()};
                    auto shift_key = comm::start_ring_shift(exec, comm, key.flat(), next_key.flat(), 1, 0);
                    auto shift_value = comm::start_ring_shift(exec, comm, value.flat(), next_value.flat(), 1, 1);
                    attention.add(theirs, key.view(), value.view(), dkey.view(), dvalue.view());
                    shift_key.wait();
                    shift_value.wait();
                }
                Tensor<KeyGradient, Exec> next_dkey(context, dkey.extents()), next_dvalue(context, dkey.extents());
                auto shift_dkey = comm::start_ring_shift(exec, comm, dkey.flat(), next_dkey.flat(), 1, 2);
                auto shift_dvalue = comm::start_ring_shift(exec, comm, dvalue.flat(), next_dvalue.flat(), 1, 3);
                shift_dkey.wait();
                shift_dvalue.wait();
                key = std::move(next_key);
                value = std::move(next_value);
                dkey = std::move(next_dkey);
                dvalue = std::move(next_dvalue);
            }
            receive(attention.dquery(), std::move(dkey), std::move(dvalue));
        }

      private:
        Placing placing_;
    };
};

} // namespace pentad::context
