// Attention of a shard's queries over the keys of all shards, one shard's block after the other,
// whatever brings them: what ring and all-gather share. A zigzag shard has two pieces, each with a running state of its
// own.
#pragma once

#include <pentad/kernels/attention.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/algebra.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/layout/partition.hpp>
#include <pentad/memory/strided_copy.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

namespace pentad::context {

/// Keys [begin, end) of a shard, in views of its keys from `first` on.
struct KeyRange {
    std::size_t begin = 0, end = dynamic, first = 0;
};

namespace detail {

/// Elements [first, first + length) of the sequence of [batch, seq, heads, head_dim].
template <class V>
auto part(V const& heads, Segment const& segment) {
    return Kokkos::subview(heads, Kokkos::ALL, std::pair(segment.local, segment.local + segment.length), Kokkos::ALL,
                           Kokkos::ALL);
}

/// A buffer of the pool seen as a View.
template <class A, int Rank, class Exec>
struct Scratch {
    memory::Buffer<typename Exec::memory_space> block;
    View<A, Rank, Exec> view;

    Scratch() = default;
    template <class... Extents>
    Scratch(Context<Exec> const& context, Extents... extents)
        : block(context.take((sizeof(A) * ... * static_cast<std::size_t>(extents)))),
          view(static_cast<A*>(block.data()), static_cast<std::size_t>(extents)...) {}
};

/// f(query piece, keys, mask) for each pair of pieces of two shards in which some query sees some key, of the keys that
/// lie in `range` of their shard. The queries are `ahead` positions further than where they lie.
template <class F>
void for_each_visible(Partition const& partition, std::size_t mine, std::size_t theirs, KeyRange const& range,
                      std::size_t ahead, F&& f) {
    for (std::size_t i = 0; i < partition.pieces(); ++i)
        for (std::size_t j = 0; j < partition.pieces(); ++j) {
            auto const query = partition.segment(mine, i), all = partition.segment(theirs, j);
            std::size_t const begin = std::max(all.local, range.begin),
                              end = std::min(all.local + all.length, range.end);
            if (begin >= end) continue;
            Segment const key{all.global + (begin - all.local), begin - range.first, end - begin};
            if (key.global < ahead + query.global + query.length)
                f(i, query, key,
                  kernels::CausalOffset{true, static_cast<i64>(ahead + query.global), static_cast<i64>(key.global)});
        }
}

} // namespace detail

/// What the forward pass leaves for the backward pass, beside the output, which the layer keeps.
template <class Query, class Key, class Exec>
struct Saved {
    using A = accumulator_t<typename Query::element>;
    Tensor<Query, Exec> query;
    Tensor<Key, Exec> key, value;
    memory::Buffer<typename Exec::memory_space> lse; ///< [pieces, batch, heads, seq of a piece]
};

/// How a sequence, or each slice of it, lies over cp, and this rank's place: fixed for a model.
struct BlockPositions {
    Partition partition;
    std::size_t mine; ///< this rank's shard

    /// @param axis along which the ranks hold different blocks: cp or a factor of it
    template <class Exec>
    BlockPositions(LayerSetup<Exec> const& setup, std::string_view axis)
        : partition(setup.block_partition(axis)), mine(setup.context.communicators().shard_index(AxisNames(axis))) {}
    [[nodiscard]] bool is_one_block() const { return partition.shards() * partition.pieces() == 1; }
    /// How far a slice is ahead of one that is `slices` before it.
    [[nodiscard]] std::size_t ahead(std::size_t slices) const {
        return slices * partition.shards() * partition.local_extent();
    }
};

/// The forward pass over blocks of keys: `add` each key of each shard once, in any order, then `finish`.
template <class Query, class Key, class Exec>
class BlockForward {
  public:
    using T = typename Query::element;
    using A = accumulator_t<T>;

    BlockForward(BlockPositions const& positions, Saved<Query, Key, Exec>& saved)
        : positions_(positions), saved_(&saved) {
        auto const& context = saved.query.context();
        auto const q = saved.query.view();
        std::size_t const piece = q.extent(1) / pieces();
        saved.lse = context.take(q.extent(0) * q.extent(1) * q.extent(2) * sizeof(A));
        for (std::size_t i = 0; i < pieces(); ++i) {
            max_[i] = {context, q.extent(0), q.extent(2), piece};
            sum_[i] = {context, q.extent(0), q.extent(2), piece};
            output_[i] = {context, q.extent(0), piece, q.extent(2), q.extent(3)};
            kernels::attention_start(context.exec(), state(i));
        }
    }
    /// Keys and values of shard `theirs`, of a slice that the queries are `ahead` of: views [batch, seq of a shard,
    /// kv_heads, head_dim].
    template <class V>
    void add(std::size_t theirs, V const& key, V const& value, KeyRange const& range = {}, std::size_t ahead = 0) {
        auto const q = saved_->query.view();
        detail::for_each_visible(positions_.partition, positions_.mine, theirs, range, ahead,
                                 [&](std::size_t i, Segment const& mine, Segment const& other, auto const& mask) {
                                     kernels::attention_accumulate(saved_->query.context().exec(),
                                                                   detail::part(q, mine), detail::part(key, other),
                                                                   detail::part(value, other), scale(q), mask,
                                                                   state(i));
                                 });
    }
    /// The attention's output.
    Tensor<Query, Exec> finish() {
        auto const& context = saved_->query.context();
        Tensor<Query, Exec> output(context, saved_->query.extents());
        auto const o = output.view();
        for (std::size_t i = 0; i < pieces(); ++i)
            kernels::attention_finish(context.exec(), state(i),
                                      detail::part(o, positions_.partition.segment(positions_.mine, i)),
                                      lse(*saved_, i, pieces()));
        return output;
    }

    /// The whole forward pass where the queries and keys of this rank are all there are.
    static Tensor<Query, Exec> at_once(Saved<Query, Key, Exec>& saved) {
        auto const& context = saved.query.context();
        auto const q = saved.query.view();
        saved.lse = context.take(q.extent(0) * q.extent(1) * q.extent(2) * sizeof(A));
        Tensor<Query, Exec> output(context, saved.query.extents());
        kernels::attention_forward(context.exec(), q, saved.key.view(), saved.value.view(), scale(q), {true, 0, 0},
                                   output.view(), lse(saved, 0, 1));
        return output;
    }

    /// lse of piece i: [batch, heads, seq of a piece].
    static View<A, 3, Exec> lse(Saved<Query, Key, Exec> const& saved, std::size_t i, std::size_t pieces) {
        auto const& q = saved.query.local();
        std::size_t const piece = q[1] / pieces;
        return View<A, 3, Exec>(static_cast<A*>(saved.lse.data()) + i * q[0] * q[2] * piece, q[0], q[2], piece);
    }
    /// The scale of the scores (Vaswani et al. 2017, eq. 1).
    template <class V>
    static double scale(V const& q) {
        return 1.0 / std::sqrt(static_cast<double>(q.extent(3)));
    }

  private:
    [[nodiscard]] std::size_t pieces() const { return positions_.partition.pieces(); }
    kernels::AttentionState<A, Exec> state(std::size_t i) const {
        return {max_[i].view, sum_[i].view, output_[i].view};
    }

    BlockPositions positions_;
    Saved<Query, Key, Exec>* saved_;
    std::array<detail::Scratch<A, 3, Exec>, 2> max_, sum_;
    std::array<detail::Scratch<A, 4, Exec>, 2> output_;
};

namespace detail {

/// Numbers of the queries and heads of a layout, in accumulators: [batch, heads, seq].
template <class L>
struct OfHeads;
template <class T, class Batch, class Seq, class Heads, class HeadDim, class... States>
struct OfHeads<Layout<T, Dims<Batch, Seq, Heads, HeadDim>, States...>> {
    using type = Layout<accumulator_t<T>, Dims<Batch, Heads, Seq>, States...>;
};

} // namespace detail

/// The sums over head_dim of output times gradient, which is all that the backward pass needs of the output (Dao 2023,
/// algorithm 2, line 4).
template <class Query, class Exec>
using Delta = Tensor<typename detail::OfHeads<dual_t<Query>>::type, Exec>;
template <class Query, class Exec>
Delta<Query, Exec> delta_of(Tensor<Query, Exec> const& output, Tensor<dual_t<Query>, Exec> const& dy) {
    auto const extents = output.extents();
    Delta<Query, Exec> delta(output.context(), {extents[0], extents[2], extents[1]});
    kernels::attention_backward_start(output.context().exec(), output.view(), dy.view(), delta.view());
    return delta;
}

/// The backward pass over blocks of keys: `add` each key of each shard once, in any order; dq is then whole.
template <class Query, class Key, class Exec>
class BlockBackward {
  public:
    using T = typename Query::element;
    using A = accumulator_t<T>;
    using QueryGradient = with_element_t<dual_t<Query>, A>;

    BlockBackward(BlockPositions const& positions, Saved<Query, Key, Exec> const& saved,
                  Delta<Query, Exec> const& delta, Tensor<dual_t<Query>, Exec> const& dy)
        : positions_(positions), saved_(&saved), dy_(dy), dquery_(dy.context(), dy.extents()) {
        auto const& context = dy.context();
        dquery_.clear();
        auto const all = delta.view();
        std::size_t const pieces = positions_.partition.pieces(), piece = all.extent(2) / pieces;
        memory::Runs const runs = memory::Runs(piece * sizeof(A))
                                      .add(all.extent(0) * all.extent(1), piece * sizeof(A), all.extent(2) * sizeof(A));
        for (std::size_t i = 0; i < pieces; ++i) {
            delta_[i] = {context, all.extent(0), all.extent(1), piece};
            memory::copy("piece of delta", context.exec(), runs, delta_[i].view.data(), all.data() + i * piece);
        }
    }
    /// Adds to the gradients of keys and values of shard `theirs`, in accumulators of the same shape.
    template <class V, class G>
    void add(std::size_t theirs, V const& key, V const& value, G const& dkey, G const& dvalue,
             KeyRange const& range = {}, std::size_t ahead = 0) {
        auto const q = saved_->query.view();
        detail::for_each_visible(positions_.partition, positions_.mine, theirs, range, ahead,
                                 [&](std::size_t i, Segment const& mine, Segment const& other, auto const& mask) {
                                     using Forward = BlockForward<Query, Key, Exec>;
                                     kernels::attention_backward_accumulate(
                                         dy_.context().exec(), detail::part(q, mine), detail::part(key, other),
                                         detail::part(value, other), detail::part(dy_.view(), mine),
                                         Forward::lse(*saved_, i, positions_.partition.pieces()), delta_[i].view,
                                         Forward::scale(q), mask, detail::part(dquery_.view(), mine),
                                         detail::part(dkey, other), detail::part(dvalue, other));
                                 });
    }
    [[nodiscard]] Tensor<QueryGradient, Exec> const& dquery() const { return dquery_; }

  private:
    BlockPositions positions_;
    Saved<Query, Key, Exec> const* saved_;
    Tensor<dual_t<Query>, Exec> dy_;
    Tensor<QueryGradient, Exec> dquery_;
    std::array<detail::Scratch<A, 3, Exec>, 2> delta_;
};

} // namespace pentad::context
