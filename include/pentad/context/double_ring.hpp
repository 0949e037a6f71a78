// Two rings (LoongTrain: Gu et al. 2024, arXiv 2406.18485, section 4.3): cp is outer(cp) x inner(cp). While the blocks
// of a node go round inner(cp), those of the node before arrive over outer(cp). A block crosses the network once for
// each node, and has the time of a whole inner ring for it.
#pragma once

#include <pentad/context/cached_attention.hpp>
#include <pentad/context/detail/block_strategy.hpp>
#include <pentad/context/detail/ring_pass.hpp>
#include <pentad/layout/ml.hpp>

#include <cstddef>
#include <utility>

namespace pentad::context {

using namespace ml;

namespace detail {

template <class Query, class Key, class Exec, class Communication>
class DoubleRingMover {
  public:
    using Keys = Pair<Key, Exec>;
    using Gradients = PairGradient<Key, Exec>;

    static void attend(BlockForward<Query, Key, Exec>& attention, Keys const& mine, std::size_t slice) {
        go_round(mine, routes(mine.key, attention.blocks(), slice),
                 [&](std::size_t, auto const& inner, Keys const& keys) { inner.attend(attention, keys, slice); });
    }
    /// Gradients of a node's blocks come home over inner(cp), are added to those of the nodes before, and go on. Most
    /// of the own block, its earlier keys, is computed while the last ones arrive.
    static void add_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& mine, Gradients& gradients,
                              std::size_t slice) {
        using Gradient = typename Gradients::layout;
        if (gradients.key.empty()) gradients = mine.template zeros<Gradient>();
        auto const& context = mine.key.context();
        auto const route = routes(mine.key, attention.blocks(), slice);
        GradientRoute<Gradient, Exec> travelling(context, along<outer<cp>>(context), route, gradients, 0);
        std::size_t const kept_for_later = mine.key.local()[1] / 2;
        go_round(mine, route, [&](std::size_t step, auto const& inner, Keys const& keys) {
            if (step == 0) return inner.add_gradients(attention, keys, gradients, slice, kept_for_later);
            inner.add_gradients(attention, keys, travelling.begin_apart(step), slice);
            for (std::size_t i = 0; i < route.pieces().count(); ++i) {
                travelling.await_and_add(step, i);
                travelling.pass_on(step, i);
                travelling.receive_next(step, i);
            }
        });
        auto const node = static_cast<std::size_t>(along<outer<cp>>(context).rank());
        ring_of(context, node).add_own(attention, mine, gradients, {0, kept_for_later}, slice);
        travelling.finish();
    }

  private:
    using Pass = RingPass<Query, Key, Exec, Communication>;

    template <class Axis>
    static comm::Communicator const& along(Context<Exec> const& context) {
        return context.communicators().along(AxisNames(Axis::name));
    }
    /// The ring inside of a node.
    static Pass ring_of(Context<Exec> const& context, std::size_t node) {
        auto const& inside = along<inner<cp>>(context);
        return {inside, node * static_cast<std::size_t>(inside.size())};
    }
    /// The routes of this rank's block, and of the blocks of its counterparts on other nodes, to the nodes whose
    /// queries see them.
    static Routes routes(Tensor<Key, Exec> const& key, PassBlocks<Exec> const& blocks, std::size_t slice) {
        auto const &inside = along<inner<cp>>(key.context()), &across = along<outer<cp>>(key.context());
        auto const ranks = static_cast<std::size_t>(inside.size()), mine = static_cast<std::size_t>(inside.rank());
        return Routes(static_cast<std::size_t>(across.size()), block_pieces<Blocking>(key, blocks, across),
                      [&](std::size_t node, std::size_t block, KeyRange const& range) {
                          for (std::size_t rank = 0; rank < ranks; ++rank)
                              if (blocks.sees(node * ranks + rank, block * ranks + mine, slice, range)) return true;
                          return false;
                      });
    }
    /// f(step, the inner ring, its blocks) for the blocks of each node.
    template <class F>
    static void go_round(Keys const& mine, Routes const& routes, F&& f) {
        auto const& context = mine.key.context();
        auto const& across = along<outer<cp>>(context);
        auto const nodes = static_cast<std::size_t>(across.size()), node = static_cast<std::size_t>(across.rank());
        auto const block = [&](std::size_t step) { return (node + nodes - step) % nodes; };
        Keys here = mine, next;
        RingExchange<Key, Exec> exchange(context, across, routes.pieces(), 4 * static_cast<int>(comm::Pieces::most));
        for (std::size_t step = 0; step < nodes; ++step) {
            bool const is_last = step + 1 == nodes;
            if (!is_last) next = mine.like();
            for (std::size_t i = 0; !is_last && i < routes.pieces().count(); ++i) {
                if (auto* const run = observe::dry_run_for_all())
                    exchange.dry_send(*run, i, mine, routes.keys_sent(step, i));
                else if (step < routes.of(block(step), i).last)
                    exchange.send(i, here);
                if (step < routes.of(block(step + 1), i).last) exchange.receive(i, next);
            }
            f(step, ring_of(context, block(step)), here);
            for (std::size_t i = 0; !is_last && i < routes.pieces().count(); ++i)
                if (step < routes.of(block(step + 1), i).last) exchange.await(i);
            here = std::exchange(next, {});
        }
        exchange.finish();
    }
};

} // namespace detail

/// Sends per rank over inner(cp) m-1 and over outer(cp) n/m - 1 of the ring's blocks each time, m ranks on a node.
template <class Communication = Overlap<4>>
struct DoubleRing : KeepsKeys {
    template <class Query, class Key, class Exec>
    class on
        : public detail::BlockStrategy<Query, Key, Exec, detail::DoubleRingMover<Query, Key, Exec, Communication>> {
      public:
        explicit on(LayerSetup<Exec> const& setup, model::Attention const& part)
            : on::BlockStrategy({setup, part, cp::name}, {}) {}
    };
};

} // namespace pentad::context
