// Two rings (LoongTrain: Gu et al. 2024, arXiv 2406.18485, section 4.3): cp is outer(cp) x inner(cp). While the blocks
// of a node go round inner(cp), those of the node before arrive over outer(cp). A block crosses the network once for
// each node, and has the time of a whole inner ring for it.
#pragma once

#include <pentad/context/detail/block_strategy.hpp>
#include <pentad/context/detail/ring_pass.hpp>

#include <cstddef>
#include <utility>

namespace pentad::context {

namespace detail {

template <class Query, class Key, class Exec, class Communication>
class DoubleRingMover {
  public:
    using Keys = Pair<Key, Exec>;
    using Gradients = PairGradient<Key, Exec>;

    static void attend(BlockForward<Query, Key, Exec>& attention, Keys const& mine, std::size_t ahead) {
        go_round(mine, [&](int, auto const& inner, Keys const& keys) { inner.attend(attention, keys, ahead); });
    }
    /// Gradients of a node's blocks come home over inner(cp), are added to those of the nodes before, and go on. Most
    /// of the own block, its earlier keys, is computed while the last ones arrive.
    static void add_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& mine, Gradients& gradients,
                              std::size_t ahead) {
        using Gradient = typename Gradients::layout;
        if (gradients.key.empty()) gradients = mine.template zeros<Gradient>();
        auto const& context = mine.key.context();
        Gradients arriving, leaving;
        RingExchange<Gradient, Exec> exchange(context, along<outer<cp>>(context), whole(mine.key), 0);
        std::size_t const kept_for_later = mine.key.local()[1] / 2;
        go_round(mine, [&](int step, auto const& inner, Keys const& keys) {
            if (step == 0) return inner.add_gradients(attention, keys, gradients, ahead, kept_for_later);
            auto here = mine.template zeros<Gradient>();
            inner.add_gradients(attention, keys, here, ahead);
            if (step > 1) {
                exchange.await(0);
                arriving.add_to(here);
            }
            exchange.send(0, here);
            leaving = std::move(here);
            arriving = leaving.like();
            exchange.receive(0, arriving);
        });
        ring_of(context, along<outer<cp>>(context).rank())
            .add_own(attention, mine, gradients, {0, kept_for_later}, ahead);
        if (!arriving.key.empty()) {
            exchange.await(0);
            arriving.add_to(gradients);
        }
        exchange.finish();
    }

  private:
    using Pass = RingPass<Query, Key, Exec, Communication>;

    template <class Axis>
    static comm::Communicator const& along(Context<Exec> const& context) {
        return context.communicators().along(AxisNames(Axis::name));
    }
    /// The ring inside of a node.
    static Pass ring_of(Context<Exec> const& context, int node) {
        auto const& inside = along<inner<cp>>(context);
        return {inside, static_cast<std::size_t>(node * inside.size())};
    }
    static comm::Pieces whole(Tensor<Key, Exec> const& key) {
        auto const block = pentad::detail::around(key, 1);
        return comm::Pieces::of_columns(block.extent(0), block.extent(1), 1);
    }
    /// f(step, the inner ring, its blocks) for the blocks of each node.
    template <class F>
    static void go_round(Keys const& mine, F&& f) {
        auto const& context = mine.key.context();
        auto const& across = along<outer<cp>>(context);
        int const nodes = across.size();
        Keys here = mine, next, leaving;
        RingExchange<Key, Exec> exchange(context, across, whole(mine.key), 2 * static_cast<int>(comm::Pieces::most));
        for (int step = 0; step < nodes; ++step) {
            if (step + 1 < nodes) {
                exchange.send(0, here);
                next = here.like();
                exchange.receive(0, next);
            }
            f(step, ring_of(context, (across.rank() + nodes - step) % nodes), here);
            if (step + 1 == nodes) break;
            exchange.await(0);
            leaving = std::exchange(here, std::move(next)); // until the next has waited for it
        }
        exchange.finish();
    }
};

} // namespace detail

/// Sends per rank over inner(cp) m-1 and over outer(cp) n/m - 1 of the ring's blocks each time, m ranks on a node.
template <class Communication = Overlap<4>>
struct DoubleRing {
    template <class Query, class Key, class Exec>
    class on
        : public detail::BlockStrategy<Query, Key, Exec, detail::DoubleRingMover<Query, Key, Exec, Communication>> {
      public:
        explicit on(LayerSetup<Exec> const& setup) : on::BlockStrategy({setup, cp::name}, {}) {}
    };
};

} // namespace pentad::context
