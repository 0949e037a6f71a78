// Ring attention: keys and values travel round the ring of cp while each rank attends to those it has;
// in the backward pass their gradients travel along and come home (Liu et al. 2023, arXiv 2310.01889).
#pragma once

#include <pentad/context/detail/blocks.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/tensor/overlap.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace pentad::context {

namespace detail {

/// Two tensors of keys and values, or of their gradients.
template <class L, class Exec>
struct Pair {
    Tensor<L, Exec> key, value;
};

/// Sends pairs of keys and values round the ring, in pieces of the sequence.
template <class L, class Exec>
class RingExchange {
  public:
    RingExchange(Context<Exec> const& context, comm::Communicator const& comm, comm::Pieces const& pieces,
                 int first_tag)
        : pieces_(pieces), keys_(context.exec(), comm, first_tag),
          values_(context.exec(), comm, first_tag + static_cast<int>(comm::Pieces::most)) {}
    void send(std::size_t i, Pair<L, Exec> const& pair) {
        keys_.send(i, seen(pair.key), pieces_.at(i));
        values_.send(i, seen(pair.value), pieces_.at(i));
    }
    void receive(std::size_t i, Pair<L, Exec> const& pair) {
        keys_.receive(i, seen(pair.key), pieces_.at(i));
        values_.receive(i, seen(pair.value), pieces_.at(i));
    }
    void await(std::size_t i) {
        keys_.await(i);
        values_.await(i);
    }
    void finish() {
        keys_.finish();
        values_.finish();
    }

  private:
    using V = View<typename L::element, 3, Exec>;
    static V seen(Tensor<L, Exec> const& tensor) { return pentad::detail::around(tensor, 1); }

    comm::Pieces pieces_;
    comm::RingTransfers<Exec, V> keys_, values_;
};

} // namespace detail

/// Sends per rank: forward n-1 blocks of K and V; backward the same, and n-1 blocks of dK and dV in accumulators.
/// @tparam Communication Overlap<Chunks>: a block travels in pieces across a network; Blocking: computation waits
template <class Communication = Overlap<4>>
struct Ring {
    template <class Query, class Key, class Exec>
    class on {
      public:
        using T = typename Query::element;
        using A = accumulator_t<T>;
        using KeyGradient = with_element_t<dual_t<Key>, A>;

        using Saved = context::Saved<Query, Key, Exec>;
        using Slice = context::Slice<Key, Exec>;

        explicit on(LayerSetup<Exec> const& setup) : positions_(setup) {}

        /// The output for saved.query, saved.key and saved.value, and the keys and values of the slices before.
        Tensor<Query, Exec> forward(Saved& saved, std::span<Slice const> earlier = {}) const {
            if (positions_.is_one_block() && earlier.empty()) return BlockForward<Query, Key, Exec>::at_once(saved);
            BlockForward<Query, Key, Exec> attention(positions_, saved);
            auto const add = [&](Keys const& own, std::size_t ahead) {
                go_round(
                    own, [&] { attention.add(positions_.mine, own.key.view(), own.value.view(), {}, ahead); },
                    [&](std::size_t, std::size_t, std::size_t theirs, auto const& keys, KeyRange const& range) {
                        attention.add(theirs, keys.key.view(), keys.value.view(), range, ahead);
                    });
            };
            add({saved.key, saved.value}, 0);
            for (std::size_t i = 0; i < earlier.size(); ++i)
                add({earlier[i].key, earlier[i].value}, positions_.ahead(earlier.size() - i));
            return attention.finish();
        }

        /// Calls receive(dq, dk, dv), in accumulators; adds to the gradients of the slices before.
        template <class Receive>
        void backward(Saved& saved, Tensor<dual_t<Query>, Exec> const& dy, Receive&& receive,
                      std::span<Slice> earlier = {}) const {
            BlockBackward<Query, Key, Exec> attention(positions_, saved, dy);
            for (std::size_t i = 0; i < earlier.size(); ++i) {
                auto& slice = earlier[i];
                slice.begin_gradients();
                add_gradients(attention, {slice.key, slice.value}, {slice.dkey, slice.dvalue},
                              positions_.ahead(earlier.size() - i));
            }
            Gradients const own = zeros(saved.key);
            add_gradients(attention, {saved.key, saved.value}, own, 0);
            receive(attention.dquery(), own.key, own.value);
        }

      private:
        using Keys = detail::Pair<Key, Exec>;
        using Gradients = detail::Pair<KeyGradient, Exec>;

        static Gradients zeros(Tensor<Key, Exec> const& like) {
            Gradients const gradients{{like.context(), like.extents()}, {like.context(), like.extents()}};
            gradients.key.clear();
            gradients.value.clear();
            return gradients;
        }
        /// Adds to the gradients `own` of this rank's keys and values `mine`, whose slice the queries are `ahead` of:
        /// what this rank's queries give, and what those of the others do, which comes home.
        void add_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& mine, Gradients const& own,
                           std::size_t ahead) const {
            auto const& context = mine.key.context();
            auto const& comm = context.communicators().along(AxisNames(cp::name));
            auto const pieces = cut(comm, mine.key);
            // The gradients of this rank's own keys stay here; those of others come from the rank before, which had
            // those keys first, and go on to the next, at last home. A part of its own is kept for then.
            std::size_t const length = mine.key.local()[1], later = positions_.partition.shards() > 1 ? length / 2 : 0;
            auto const add_own = [&](KeyRange const& range) {
                attention.add(positions_.mine, mine.key.view(), mine.value.view(), own.key.view(), own.value.view(),
                              range, ahead);
            };
            Gradients arriving, here, leaving;
            detail::RingExchange<KeyGradient, Exec> exchange(context, comm, pieces,
                                                             2 * static_cast<int>(comm::Pieces::most));
            go_round(
                mine, [&] { add_own({0, length - later}); },
                [&](std::size_t step, std::size_t i, std::size_t theirs, auto const& keys, KeyRange const& range) {
                    if (i + 1 == pieces.count()) { // the first of a step
                        leaving = std::move(here);
                        here = step == 1 ? zeros(mine.key) : std::move(arriving);
                        arriving = {{context, mine.key.extents()}, {context, mine.key.extents()}};
                    }
                    if (step > 1) exchange.await(i);
                    attention.add(theirs, keys.key.view(), keys.value.view(), here.key.view(), here.value.view(), range,
                                  ahead);
                    exchange.send(i, here);
                    exchange.receive(i, arriving);
                    if (Communication::chunks == 0) exchange.await(i);
                });
            add_own({length - later, length});
            if (!arriving.key.empty()) {
                for (std::size_t i = pieces.count(); i-- > 0;) exchange.await(i);
                kernels::add<A>(context.exec(), arriving.key.flat(), own.key.flat());
                kernels::add<A>(context.exec(), arriving.value.flat(), own.value.flat());
            }
            exchange.finish();
        }

        /// The pieces of the sequence in which a shard travels.
        static comm::Pieces cut(comm::Communicator const& comm, Tensor<Key, Exec> const& key) {
            auto const shard = pentad::detail::around(key, 1);
            std::size_t const count = comm.crosses_network() ? pentad::detail::pieces_of<Communication>(shard) : 1;
            return comm::Pieces::of_columns(shard.extent(0), shard.extent(1), count);
        }
        /// Calls own() once keys and values are on their way, then f(step, piece, shard, keys and values, range of
        /// them) for every piece of the other shards as they come round: the latest keys, which are seen least, first,
        /// so that the longest computation has most transfers beside it.
        template <class Own, class F>
        void go_round(Keys const& mine, Own&& own, F&& f) const {
            auto const& context = mine.key.context();
            auto const& comm = context.communicators().along(AxisNames(cp::name));
            std::size_t const n = positions_.partition.shards();
            auto const pieces = cut(comm, mine.key);
            Keys here = mine, next, leaving;
            detail::RingExchange<Key, Exec> exchange(context, comm, pieces, 0);
            for (std::size_t step = 0; step < n; ++step) {
                if (step > 0) {
                    leaving = std::move(here); // until each piece of the next has waited for it
                    here = std::move(next);
                }
                if (step + 1 < n) next = {{context, here.key.extents()}, {context, here.key.extents()}};
                for (std::size_t i = pieces.count(); i-- > 0;) {
                    if (step > 0) exchange.await(i);
                    if (step + 1 < n) {
                        exchange.send(i, here);
                        exchange.receive(i, next);
                        if (Communication::chunks == 0) exchange.await(i);
                    }
                    auto const box = pieces.at(i);
                    if (step > 0)
                        f(step, i, (positions_.mine + n - step) % n, here, KeyRange{box.first_column, box.last_column});
                }
                if (step == 0) own();
            }
            exchange.finish();
        }

        BlockPositions positions_;
    };
};

} // namespace pentad::context
