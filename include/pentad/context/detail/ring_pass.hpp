// Blocks of keys and values that travel once round a ring of ranks, each of which attends to those that it has; in the
// backward pass their gradients travel along and come home (Liu et al. 2023, arXiv 2310.01889).
#pragma once

#include <pentad/context/detail/blocks.hpp>
#include <pentad/context/detail/pair.hpp>
#include <pentad/tensor/overlap.hpp>

#include <cstddef>
#include <utility>

namespace pentad::context::detail {

/// Sends pairs of keys and values round the ring, in pieces of the sequence.
template <class L, class Exec>
class RingExchange {
  public:
    /// @param first_tag of 2 Pieces::most
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

/// Sends per rank: forward n-1 blocks of K and V; backward the same, and n-1 blocks of dK and dV in accumulators.
/// @tparam Communication Overlap<Chunks>: a block travels in pieces across a network; Blocking: computation waits
template <class Query, class Key, class Exec, class Communication>
class RingPass {
  public:
    using A = accumulator_t<typename Key::element>;
    using Keys = Pair<Key, Exec>;
    using Gradients = Pair<with_element_t<dual_t<Key>, A>, Exec>;

    /// @param first the shard of the sequence that the ring's first rank begins with; the others have those after it
    RingPass(comm::Communicator const& comm, std::size_t first)
        : comm_(&comm), n_(static_cast<std::size_t>(comm.size())), rank_(static_cast<std::size_t>(comm.rank())),
          first_(first) {}

    /// Attends to `mine` and to the blocks of the others, whose slice the queries are `ahead` of.
    void attend(BlockForward<Query, Key, Exec>& attention, Keys const& mine, std::size_t ahead) const {
        go_round(
            mine, [&] { attention.add(first_ + rank_, mine.key.view(), mine.value.view(), {}, ahead); },
            [&](std::size_t, std::size_t, std::size_t theirs, auto const& keys, KeyRange const& range) {
                attention.add(theirs, keys.key.view(), keys.value.view(), range, ahead);
            });
    }
    /// Adds to the gradients `own` of `mine` what this rank's queries give, and what those of the others do, which
    /// comes home. @param from the first of this rank's own keys that are added; add_own() adds the others
    void add_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& mine, Gradients const& own,
                       std::size_t ahead, std::size_t from = 0) const {
        auto const& context = mine.key.context();
        auto const pieces = cut(mine.key);
        // Gradients of this rank's own keys stay here; those of others' keys come from the previous rank and go on to
        // the next, until they reach their owner. Half of the own block is computed while the last ones arrive.
        std::size_t const length = mine.key.local()[1], later = n_ > 1 ? (length - from) / 2 : 0;
        Gradients arriving, here, leaving;
        RingExchange<typename Gradients::layout, Exec> exchange(context, *comm_, pieces,
                                                                2 * static_cast<int>(comm::Pieces::most));
        go_round(
            mine, [&] { add_own(attention, mine, own, {from, length - later}, ahead); },
            [&](std::size_t step, std::size_t i, std::size_t theirs, auto const& keys, KeyRange const& range) {
                if (i + 1 == pieces.count()) { // the first of a step
                    leaving = std::move(here);
                    here = step == 1 ? mine.template zeros<typename Gradients::layout>() : std::move(arriving);
                    arriving = own.like();
                }
                if (step > 1) exchange.await(i);
                attention.add(theirs, keys.key.view(), keys.value.view(), here.key.view(), here.value.view(), range,
                              ahead);
                exchange.send(i, here);
                exchange.receive(i, arriving);
                if (Communication::chunks == 0) exchange.await(i);
            });
        add_own(attention, mine, own, {length - later, length}, ahead);
        if (!arriving.key.empty()) {
            for (std::size_t i = pieces.count(); i-- > 0;) exchange.await(i);
            arriving.add_to(own);
        }
        exchange.finish();
    }
    /// Adds to the gradients of this rank's own keys of a range what this rank's queries give.
    void add_own(BlockBackward<Query, Key, Exec>& attention, Keys const& mine, Gradients const& own,
                 KeyRange const& range, std::size_t ahead) const {
        attention.add(first_ + rank_, mine.key.view(), mine.value.view(), own.key.view(), own.value.view(), range,
                      ahead);
    }

  private:
    /// The pieces of the sequence in which a block travels.
    [[nodiscard]] comm::Pieces cut(Tensor<Key, Exec> const& key) const {
        auto const block = pentad::detail::around(key, 1);
        std::size_t const count = comm_->crosses_network() ? pentad::detail::pieces_of<Communication>(block) : 1;
        return comm::Pieces::of_columns(block.extent(0), block.extent(1), count);
    }
    /// Calls own() once keys and values are on their way, then f(step, piece, shard, keys and values, range of
    /// them) for every piece of the other blocks as they come round: the latest keys, which are seen least, first,
    /// so that the longest computation has most transfers beside it.
    template <class Own, class F>
    void go_round(Keys const& mine, Own&& own, F&& f) const {
        auto const& context = mine.key.context();
        auto const pieces = cut(mine.key);
        Keys here = mine, next, leaving;
        RingExchange<Key, Exec> exchange(context, *comm_, pieces, 0);
        for (std::size_t step = 0; step < n_; ++step) {
            if (step > 0) {
                leaving = std::move(here); // until each piece of the next has waited for it
                here = std::move(next);
            }
            if (step + 1 < n_) next = here.like();
            for (std::size_t i = pieces.count(); i-- > 0;) {
                if (step > 0) exchange.await(i);
                if (step + 1 < n_) {
                    exchange.send(i, here);
                    exchange.receive(i, next);
                    if (Communication::chunks == 0) exchange.await(i);
                }
                auto const box = pieces.at(i);
                if (step > 0)
                    f(step, i, first_ + (rank_ + n_ - step) % n_, here, KeyRange{box.first_column, box.last_column});
            }
            if (step == 0) own();
        }
        exchange.finish();
    }

    comm::Communicator const* comm_;
    std::size_t n_, rank_, first_;
};

} // namespace pentad::context::detail
