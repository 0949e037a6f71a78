// Attention of a shard's queries over the keys of all shards, one shard's block after the other, whatever brings them:
// what ring and all-gather share. A shard is one or several runs of the sequence.
#pragma once

#include <pentad/context/detail/pass_blocks.hpp>
#include <pentad/kernels/attention.hpp>
#include <pentad/layers/layer.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <utility>

namespace pentad::context {

namespace detail {

/// Elements [first, first + length) of the sequence of [batch, seq, heads, head_dim].
template <class V>
auto part(V const& heads, Segment const& segment) {
    return Kokkos::subview(heads, Kokkos::ALL, std::pair(segment.local, segment.local + segment.length), Kokkos::ALL,
                           Kokkos::ALL);
}
/// The part of rows [batch, heads, seq].
template <class V>
auto rows_part(V const& rows, Segment const& segment) {
    return Kokkos::subview(rows, Kokkos::ALL, Kokkos::ALL, std::pair(segment.local, segment.local + segment.length));
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

} // namespace detail

/// What the forward pass leaves for the backward pass, beside the output, which the layer keeps. Values, and with them
/// the output, may be of another width than queries and keys.
template <class Query, class Key, class Exec>
struct Saved {
    using A = accumulator_t<typename Query::element>;
    Tensor<Query, Exec> query;
    Tensor<Key, Exec> key, value;
    memory::Buffer<typename Exec::memory_space> lse; ///< [batch, heads, seq]

    [[nodiscard]] View<A, 3, Exec> lse_view() const {
        auto const& q = query.local();
        return View<A, 3, Exec>(static_cast<A*>(lse.data()), q[0], q[2], q[1]);
    }
    /// An output, uninitialised.
    [[nodiscard]] Tensor<Query, Exec> output() const {
        auto extents = query.extents();
        extents[3] = value.extents()[3];
        return {query.context(), extents};
    }
};

/// The forward pass over blocks of keys: `add` each key of each shard once, in any order, then `finish`.
template <class Query, class Key, class Exec>
class BlockForward {
  public:
    using T = typename Query::element;
    using A = accumulator_t<T>;

    BlockForward(PassBlocks<Exec> const& blocks, Saved<Query, Key, Exec>& saved)
        : blocks_(&blocks), saved_(&saved), scores_(blocks.scores(saved.query)) {
        auto const& context = saved.query.context();
        auto const q = saved.query.array();
        saved.lse = context.take(q.extent(0) * q.extent(1) * q.extent(2) * sizeof(A));
        max_ = {context, q.extent(0), q.extent(2), q.extent(1)};
        sum_ = {context, q.extent(0), q.extent(2), q.extent(1)};
        output_ = {context, q.extent(0), q.extent(1), q.extent(2), saved.value.local()[3]};
        kernels::attention_start(context.exec(), kernels::AttentionState{max_.view, sum_.view, output_.view});
    }
    /// Keys and values of shard `theirs` of a slice of the sequences: views [batch, seq of a shard, kv_heads,
    /// head_dim].
    template <class V>
    void add(std::size_t theirs, V const& key, V const& value, std::size_t slice, KeyRange const& range = {}) {
        auto const q = saved_->query.array();
        blocks_->for_each_visible(theirs, slice, range, [&](Segment const& mine, Segment const& other) {
            kernels::AttentionState const state{detail::rows_part(max_.view, mine), detail::rows_part(sum_.view, mine),
                                                detail::part(output_.view, mine)};
            kernels::attention_accumulate(saved_->query.context().exec(), detail::part(q, mine),
                                          detail::part(key, other), detail::part(value, other), scores_,
                                          blocks_->mask(mine, other, slice), state);
        });
    }
    /// The attention's output. @param sinks may be empty
    Tensor<Query, Exec> finish(Tensor<sinks_t<Query>, Exec> const& sinks) {
        auto const& context = saved_->query.context();
        Tensor<Query, Exec> output = saved_->output();
        kernels::attention_finish(context.exec(), kernels::AttentionState{max_.view, sum_.view, output_.view},
                                  output.array(), saved_->lse_view(), sinks.flat());
        return output;
    }

    /// The whole forward pass where the queries and keys of this rank are all there are.
    static Tensor<Query, Exec> at_once(PassBlocks<Exec> const& blocks, Saved<Query, Key, Exec>& saved,
                                       Tensor<sinks_t<Query>, Exec> const& sinks) {
        auto const& context = saved.query.context();
        auto const q = saved.query.array();
        saved.lse = context.take(q.extent(0) * q.extent(1) * q.extent(2) * sizeof(A));
        Tensor<Query, Exec> output = saved.output();
        Segment const all{0, 0, q.extent(1)};
        kernels::attention_forward(context.exec(), q, saved.key.array(), saved.value.array(),
                                   blocks.scores(saved.query), blocks.mask(all, all, 0), output.array(),
                                   saved.lse_view(), sinks.flat());
        return output;
    }
    [[nodiscard]] PassBlocks<Exec> const& blocks() const { return *blocks_; }

  private:
    PassBlocks<Exec> const* blocks_;
    Saved<Query, Key, Exec>* saved_;
    kernels::AttentionScores scores_;
    detail::Scratch<A, 3, Exec> max_, sum_;
    detail::Scratch<A, 4, Exec> output_;
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
    kernels::attention_backward_start(output.context().exec(), output.array(), dy.array(), delta.array());
    return delta;
}

/// The backward pass over blocks of keys: `add` each key of each shard once, in any order; dq is then whole.
template <class Query, class Key, class Exec>
class BlockBackward {
  public:
    using T = typename Query::element;
    using A = accumulator_t<T>;
    using QueryGradient = with_element_t<dual_t<Query>, A>;

    BlockBackward(PassBlocks<Exec> const& blocks, Saved<Query, Key, Exec> const& saved, Delta<Query, Exec> delta,
                  Tensor<dual_t<Query>, Exec> const& dy)
        : blocks_(&blocks), saved_(&saved), scores_(blocks.scores(saved.query)), delta_(std::move(delta)), dy_(dy),
          dquery_(dy.context(), saved.query.extents()) {
        dquery_.clear();
    }
    /// Adds to the gradients of keys and values of shard `theirs`, in accumulators of the same shape.
    template <class V, class G>
    void add(std::size_t theirs, V const& key, V const& value, G const& dkey, G const& dvalue, std::size_t slice,
             KeyRange const& range = {}) {
        auto const q = saved_->query.array();
        blocks_->for_each_visible(theirs, slice, range, [&](Segment const& mine, Segment const& other) {
            kernels::attention_backward_accumulate(
                dy_.context().exec(), detail::part(q, mine), detail::part(key, other), detail::part(value, other),
                detail::part(dy_.array(), mine), detail::rows_part(saved_->lse_view(), mine),
                detail::rows_part(delta_.array(), mine), scores_, blocks_->mask(mine, other, slice),
                detail::part(dquery_.array(), mine), detail::part(dkey, other), detail::part(dvalue, other));
        });
    }
    [[nodiscard]] Tensor<QueryGradient, Exec> const& dquery() const { return dquery_; }
    /// The gradient of the sinks, which all blocks of keys together give; empty if these are.
    [[nodiscard]] Tensor<sinks_gradient_t<Query>, Exec> dsinks(Tensor<sinks_t<Query>, Exec> const& sinks) const {
        if (sinks.empty()) return {};
        Tensor<sinks_gradient_t<Query>, Exec> gradient(sinks.context(), sinks.extents());
        gradient.clear();
        kernels::attention_sinks_backward<T>(sinks.context().exec(), sinks.flat(), saved_->lse_view(), delta_.array(),
                                             gradient.array_flat());
        return gradient;
    }
    [[nodiscard]] PassBlocks<Exec> const& blocks() const { return *blocks_; }

  private:
    PassBlocks<Exec> const* blocks_;
    Saved<Query, Key, Exec> const* saved_;
    kernels::AttentionScores scores_;
    Delta<Query, Exec> delta_;
    Tensor<dual_t<Query>, Exec> dy_;
    Tensor<QueryGradient, Exec> dquery_;
};

} // namespace pentad::context
