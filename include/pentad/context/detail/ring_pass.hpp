// Blocks of keys and values that travel once round a ring of ranks, each of which attends to those that it has; in the
// backward pass their gradients travel along and come home (Liu et al. 2023, arXiv 2310.01889). What the ranks that are
// still to come do not see is not sent to them.
#pragma once

#include <pentad/context/detail/blocks.hpp>
#include <pentad/context/detail/pair.hpp>
#include <pentad/context/detail/route.hpp>

#include <cstddef>
#include <utility>

namespace pentad::context::detail {

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

    /// Attends to `mine` and to the blocks of the others, of a slice of the sequences.
    void attend(BlockForward<Query, Key, Exec>& attention, Keys const& mine, std::size_t slice) const {
        go_round(
            mine, routes(mine.key, attention.blocks(), slice),
            [&] { attention.add(first_ + rank_, mine.key.array(), mine.value.array(), slice); }, [](std::size_t) {},
            [&](std::size_t, std::size_t, std::size_t theirs, auto const& keys, KeyRange const& range) {
                if (!keys.key.empty()) attention.add(theirs, keys.key.array(), keys.value.array(), slice, range);
            });
    }
    /// Adds to the gradients `own` of `mine` what this rank's queries give, and what those of the others do, which
    /// comes home. @param from the first of this rank's own keys that are added; add_own() adds the others
    void add_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& mine, Gradients const& own,
                       std::size_t slice, std::size_t from = 0) const {
        auto const route = routes(mine.key, attention.blocks(), slice);
        // Half of the own block is computed while the last gradients arrive.
        std::size_t const length = mine.key.local()[1], later = n_ > 1 ? (length - from) / 2 : 0;
        GradientRoute<typename Gradients::layout, Exec> gradients(mine.key.context(), *comm_, route, own,
                                                                  2 * static_cast<int>(comm::Pieces::most));
        Gradients here;
        go_round(
            mine, route, [&] { add_own(attention, mine, own, {from, length - later}, slice); },
            [&](std::size_t step) { here = gradients.begin(step); },
            [&](std::size_t step, std::size_t i, std::size_t theirs, auto const& keys, KeyRange const& range) {
                bool const is_here = step <= route.of((rank_ + n_ - step) % n_, i).last;
                if (is_here) {
                    gradients.await(step, i);
                    attention.add(theirs, keys.key.array(), keys.value.array(), here.key.array(), here.value.array(),
                                  slice, range);
                }
                gradients.pass_on(step, i);
                gradients.receive_next(step, i, Communication::chunks == 0);
            });
        add_own(attention, mine, own, {length - later, length}, slice);
        here = {};
        gradients.finish();
    }
    /// Adds to the gradients of this rank's own keys of a range what this rank's queries give.
    void add_own(BlockBackward<Query, Key, Exec>& attention, Keys const& mine, Gradients const& own,
                 KeyRange const& range, std::size_t slice) const {
        attention.add(first_ + rank_, mine.key.array(), mine.value.array(), own.key.array(), own.value.array(), slice,
                      range);
    }

  private:
    [[nodiscard]] Routes routes(Tensor<Key, Exec> const& key, PassBlocks<Exec> const& blocks, std::size_t slice) const {
        std::size_t const first_queries = blocks.mine() - rank_;
        return Routes(n_, block_pieces<Communication>(key, blocks, *comm_),
                      [&](std::size_t rank, std::size_t block, KeyRange const& range) {
                          return blocks.sees(first_queries + rank, first_ + block, slice, range);
                      });
    }
    /// Calls own() once keys and values are on their way, then for each later step begin(step) and f(step, piece,
    /// shard, keys and values, range of them) for every piece of the block that has come round: the latest keys, which
    /// are seen least, first, so that the longest computation has most transfers beside it.
    template <class Own, class Begin, class F>
    void go_round(Keys const& mine, Routes const& routes, Own&& own, Begin&& begin, F&& f) const {
        auto const block = [&](std::size_t step) { return (rank_ + n_ - step) % n_; };
        Keys here = mine, next;
        RingExchange<Key, Exec> exchange(mine.key.context(), *comm_, routes.pieces(), 0);
        for (std::size_t step = 0; step < n_; ++step) {
            if (step > 0) {
                here = std::exchange(next, {});
                begin(step);
            }
            bool const is_last = step + 1 == n_;
            if (!is_last && routes.reaches(block(step + 1), step + 1)) next = mine.like();
            for (std::size_t i = routes.pieces().count(); i-- > 0;) {
                std::size_t const last = routes.of(block(step), i).last;
                if (step > 0 && step <= last) exchange.await(i);
                if (auto* const run = observe::dry_run_for_all(); run != nullptr && !is_last)
                    exchange.dry_send(*run, i, mine, routes.keys_sent(step, i));
                else if (!is_last && step < last)
                    exchange.send(i, here);
                if (!is_last && step < routes.of(block(step + 1), i).last) {
                    exchange.receive(i, next);
                    if (Communication::chunks == 0) exchange.await(i);
                }
                if (step > 0) f(step, i, first_ + block(step), here, routes.range(i));
            }
            if (step == 0) own();
        }
        exchange.finish();
    }

    comm::Communicator const* comm_;
    std::size_t n_, rank_, first_;
};

} // namespace pentad::context::detail
