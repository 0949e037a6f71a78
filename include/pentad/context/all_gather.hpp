// K and V are gathered over cp, and their gradients reduce-scattered (Llama 3: Dubey et al. 2024, section 3.3.2).
// Within a node these are redistributions. Across a network they go on beside attention, in pieces of the sequence
// (FPDT: Yao et al. 2024, arXiv 2408.16978): while queries attend to one piece the next is gathered, and the gradients
// of the last are summed.
#pragma once

#include <pentad/comm/collectives.hpp>
#include <pentad/context/cached_attention.hpp>
#include <pentad/context/detail/block_strategy.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/overlap.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace pentad::context {

using namespace ml;

namespace detail {

/// Keys and values of a range of each shard of the sequence, or their gradients: of each rank
/// [key and value, batch, range, kv_heads, head_dim].
template <class T, class Exec>
class PairsOfRanks {
  public:
    /// @param extents of one key or value
    PairsOfRanks(Context<Exec> const& context, std::size_t ranks, std::array<std::size_t, 4> const& extents)
        : extents_(extents), size_(extents[0] * extents[1] * extents[2] * extents[3]),
          all_(context, ranks * 2 * size_) {}
    [[nodiscard]] View<T, 1, Exec> flat() const { return all_.view; }
    [[nodiscard]] View<T, 4, Exec> key(std::size_t rank = 0) const { return part(2 * rank); }
    [[nodiscard]] View<T, 4, Exec> value(std::size_t rank = 0) const { return part(2 * rank + 1); }

  private:
    [[nodiscard]] View<T, 4, Exec> part(std::size_t i) const {
        return View<T, 4, Exec>(all_.view.data() + i * size_, extents_[0], extents_[1], extents_[2], extents_[3]);
    }

    std::array<std::size_t, 4> extents_;
    std::size_t size_;
    Scratch<T, 1, Exec> all_;
};

template <class Query, class Key, class Exec, class Communication>
class AllGatherMover {
  public:
    using T = typename Key::element;
    using A = accumulator_t<T>;
    using Keys = Pair<Key, Exec>;
    using Gradients = PairGradient<Key, Exec>;

    static void attend(BlockForward<Query, Key, Exec>& attention, Keys const& keys, std::size_t slice) {
        std::size_t const mine = attention.blocks().mine();
        if (!along_cp(keys).crosses_network()) {
            auto const key = redistribute<Whole>(keys.key), value = redistribute<Whole>(keys.value);
            return for_each_shard(keys, mine, [&](std::size_t theirs, Segment const& shard) {
                attention.add(theirs, part(key.array(), shard), part(value.array(), shard), slice);
            });
        }
        for_each_piece(
            keys, [&] { attention.add(mine, keys.key.array(), keys.value.array(), slice); },
            [&](KeyRange const& range, PairsOfRanks<T, Exec> const& gathered) {
                for_each_other(keys, mine, [&](std::size_t theirs) {
                    attention.add(theirs, gathered.key(theirs), gathered.value(theirs), slice, range);
                });
            });
    }
    /// Half of the own block is computed while the first piece arrives, and half while the last gradients do.
    static void add_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& keys, Gradients& gradients,
                              std::size_t slice) {
        if (!along_cp(keys).crosses_network()) return add_whole_gradients(attention, keys, gradients, slice);
        if (gradients.key.empty()) gradients = keys.template zeros<typename Gradients::layout>();
        std::size_t const length = keys.key.local()[1], mine = attention.blocks().mine();
        auto const add_own = [&](KeyRange const& range) {
            attention.add(mine, keys.key.array(), keys.value.array(), gradients.key.array(), gradients.value.array(),
                          slice, range);
        };
        std::optional<Sums> arriving;
        for_each_piece(
            keys, [&] { add_own({length / 2, length}); },
            [&](KeyRange const& range, PairsOfRanks<T, Exec> const& gathered) {
                PairsOfRanks<A, Exec> summands(keys.key.context(), ranks(keys), extents(keys, range));
                memory::clear(keys.key.context().exec(), summands.flat().data(), summands.flat().size() * sizeof(A));
                for_each_other(keys, mine, [&](std::size_t theirs) {
                    attention.add(theirs, gathered.key(theirs), gathered.value(theirs), summands.key(theirs),
                                  summands.value(theirs), slice, range);
                });
                if (arriving) arriving->add_to(gradients);
                arriving.emplace(keys, std::move(summands), range);
            });
        add_own({0, length / 2});
        if (arriving) arriving->add_to(gradients);
    }

  private:
    using Whole = unsharded_t<Key, cp>;

    static void add_whole_gradients(BlockBackward<Query, Key, Exec>& attention, Keys const& keys, Gradients& gradients,
                                    std::size_t slice) {
        Pair<Whole, Exec> const whole{redistribute<Whole>(keys.key), redistribute<Whole>(keys.value)};
        auto gathered = whole.template zeros<with_element_t<dual_t<Whole>, A>>();
        for_each_shard(keys, attention.blocks().mine(), [&](std::size_t theirs, Segment const& shard) {
            attention.add(theirs, part(whole.key.array(), shard), part(whole.value.array(), shard),
                          part(gathered.key.array(), shard), part(gathered.value.array(), shard), slice);
        });
        using Gradient = typename Gradients::layout;
        Gradients own{redistribute<Gradient>(std::move(gathered.key)),
                      redistribute<Gradient>(std::move(gathered.value))};
        if (gradients.key.empty())
            gradients = std::move(own);
        else
            own.add_to(gradients);
    }

    static comm::Communicator const& along_cp(Keys const& keys) {
        return keys.key.context().communicators().along(AxisNames(cp::name));
    }
    static std::size_t ranks(Keys const& keys) { return static_cast<std::size_t>(along_cp(keys).size()); }
    static std::array<std::size_t, 4> extents(Keys const& keys, KeyRange const& range) {
        auto extents = keys.key.local();
        extents[1] = range.end - range.begin;
        return extents;
    }

    /// A piece of keys and values on its way to all ranks.
    class Gathering {
      public:
        Gathering(Keys const& keys, KeyRange const& range)
            : own_(keys.key.context(), 1, extents(keys, range)),
              all_(keys.key.context(), ranks(keys), extents(keys, range)) {
            auto const& exec = keys.key.context().exec();
            auto const& local = keys.key.local();
            std::size_t const row = local[2] * local[3] * sizeof(T), run = (range.end - range.begin) * row;
            auto const pack = [&](View<T, 4, Exec> const& to, Tensor<Key, Exec> const& from) {
                memory::copy("piece of keys", exec, memory::Runs(run).add(local[0], run, local[1] * row), to.data(),
                             from.array().data() + range.begin * local[2] * local[3]);
            };
            pack(own_.key(), keys.key);
            pack(own_.value(), keys.value);
            request_.emplace(comm::start_all_gather(exec, along_cp(keys), own_.flat(), all_.flat()));
        }
        PairsOfRanks<T, Exec> const& wait() {
            request_->wait();
            return all_;
        }

      private:
        using Flat = View<T, 1, Exec>;
        PairsOfRanks<T, Exec> own_, all_;
        std::optional<decltype(comm::start_all_gather(std::declval<Exec const&>(),
                                                      std::declval<comm::Communicator const&>(),
                                                      std::declval<Flat const&>(), std::declval<Flat const&>()))>
            request_;
    };
    /// The gradients of this rank's keys of a piece, on their way from all ranks.
    class Sums {
      public:
        Sums(Keys const& keys, PairsOfRanks<A, Exec> summands, KeyRange const& range)
            : range_(range), summands_(std::move(summands)), own_(keys.key.context(), 1, extents(keys, range)) {
            request_.emplace(
                comm::start_reduce_scatter(keys.key.context().exec(), along_cp(keys), summands_.flat(), own_.flat()));
        }
        /// Waits for them.
        void add_to(Gradients const& gradients) {
            request_->wait();
            auto const add = [&](View<A, 4, Exec> const& from, auto const& to) {
                auto const& local = to.local();
                std::size_t const row = local[2] * local[3], run = (range_.end - range_.begin) * row;
                for (std::size_t i = 0; i < local[0]; ++i)
                    kernels::add<A>(to.context().exec(), Flat(from.data() + i * run, run),
                                    Flat(to.array().data() + (i * local[1] + range_.begin) * row, run));
            };
            add(own_.key(), gradients.key);
            add(own_.value(), gradients.value);
        }

      private:
        using Flat = View<A, 1, Exec>;
        KeyRange range_;
        PairsOfRanks<A, Exec> summands_, own_;
        std::optional<decltype(comm::start_reduce_scatter(std::declval<Exec const&>(),
                                                          std::declval<comm::Communicator const&>(),
                                                          std::declval<Flat const&>(), std::declval<Flat const&>()))>
            request_;
    };

    /// f(another rank), in the order in which a ring brings their blocks.
    template <class F>
    static void for_each_other(Keys const& keys, std::size_t mine, F&& f) {
        for (std::size_t n = ranks(keys), step = 1; step < n; ++step) f((mine + n - step) % n);
    }
    /// f(shard, where it lies in the gathered sequence), this rank's own first.
    template <class F>
    static void for_each_shard(Keys const& keys, std::size_t mine, F&& f) {
        std::size_t const length = keys.key.local()[1];
        auto const visit = [&](std::size_t theirs) { f(theirs, Segment{0, theirs * length, length}); };
        visit(mine);
        for_each_other(keys, mine, visit);
    }
    /// own() while the first piece is on its way, then f(range of each shard, its keys and values) for each piece: the
    /// latest keys, which are seen least, first.
    template <class Own, class F>
    static void for_each_piece(Keys const& keys, Own&& own, F&& f) {
        auto const block = pentad::detail::around(keys.key, 1);
        auto const pieces =
            comm::Pieces::of_columns(block.extent(0), block.extent(1), pentad::detail::pieces_of<Communication>(block));
        auto const range = [&](std::size_t i) {
            auto const box = pieces.at(i);
            return KeyRange{box.first_column, box.last_column, box.first_column};
        };
        std::array<std::optional<Gathering>, 2> under_way;
        under_way[(pieces.count() - 1) % 2].emplace(keys, range(pieces.count() - 1));
        own();
        for (std::size_t i = pieces.count(); i-- > 0;) {
            if (i > 0) under_way[(i - 1) % 2].emplace(keys, range(i - 1));
            f(range(i), under_way[i % 2]->wait());
        }
    }
};

} // namespace detail

/// Sends per rank what its gathers and reduce-scatters do: forward n-1 blocks of K and V; backward the same, and n-1
/// blocks of dK and dV in accumulators.
/// @tparam Communication Overlap<Chunks>: across a network in pieces; Blocking: all at once
template <class Communication = Overlap<4>>
struct AllGather : KeepsKeys {
    template <class Query, class Key, class Exec>
    class on : public detail::BlockStrategy<Query, Key, Exec, detail::AllGatherMover<Query, Key, Exec, Communication>> {
      public:
        explicit on(LayerSetup<Exec> const& setup, model::Attention const& part)
            : on::BlockStrategy({setup, part, cp::name}, {}) {}
    };
};

} // namespace pentad::context
