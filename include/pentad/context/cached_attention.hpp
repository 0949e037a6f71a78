// Attention of tokens that are being written to the keys and values of all tokens before them, which stay where they
// were made.
#pragma once

#include <pentad/context/detail/blocks.hpp>
#include <pentad/context/detail/pass_blocks.hpp>
#include <pentad/kernels/attention.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/rounded.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace pentad::context {

/// The widths of what is kept of a token.
struct KeptWidths {
    std::size_t kv_heads, key, value;
    bool in_keys = false; ///< values are the first elements of the keys (latent attention)
};

/// The keys and values of sequences that are being written, in a tensor of their layout Key `[batch, seq, kv_heads,
/// head_dim]`: the batch are the sequences of all lanes, and the ranks that share `seq` have pages in turn.
template <class Key, class Exec>
class KeyValueCache final : public SequenceState {
  public:
    using T = typename Key::element;
    using Part = Kokkos::View<T****, Kokkos::LayoutStride, Kokkos::Device<Exec, typename Exec::memory_space>,
                              Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

    KeyValueCache(Context<Exec> const* context, KeptWidths const& widths)
        : context_(context), widths_(widths),
          shards_(static_cast<std::size_t>(context->communicators().extent(Key::value.dimensions[1].axes))) {}

    void make_room(SequenceRoom const& room) override {
        page_ = room.page;
        std::size_t const shard =
            shards_ == 1 ? room.length : (room.length + shards_ * page_ - 1) / (shards_ * page_) * page_;
        auto const made = [&](std::size_t width) {
            Tensor<Key, Exec> const tensor(
                *context_, {room.lanes * room.sequences, shard * shards_, widths_.kv_heads, width}, cache);
            tensor.clear();
            return tensor;
        };
        keys_ = made(widths_.key);
        if (!widths_.in_keys) values_ = made(widths_.value);
    }
    [[nodiscard]] std::size_t bytes() const override {
        return ((keys_.empty() ? 0 : keys_.size()) + (values_.empty() ? 0 : values_.size())) * sizeof(T);
    }

    /// Where this rank has the token at a position, which is its own.
    [[nodiscard]] std::size_t place(std::size_t position) const {
        return shards_ == 1 ? position : position / (page_ * shards_) * page_ + position % page_;
    }
    /// Keeps the keys and values of rows [first, first + count) of this rank.
    void keep(TokenRun const& run, Tensor<Key, Exec> const& key, Tensor<Key, Exec> const& value) const {
        auto const put = [&](auto const& all, auto const& from) {
            auto const target = part_of(all, run.sequence, place(run.position), run.length);
            auto const source = detail::part(from.array(), {0, run.first, run.length});
            if (kernels::dry("keep", source, target)) return;
            memory::copy("cache", context_->exec(), memory::runs_between(target, source), target.data(), source.data());
        };
        put(keys_, key);
        if (!widths_.in_keys) put(values_, value);
    }
    /// Views [1, count, kv_heads, width] of the keys and values of a sequence, from one place on.
    [[nodiscard]] Part keys(std::size_t sequence, std::size_t place, std::size_t count) const {
        return part_of(keys_, sequence, place, count);
    }
    [[nodiscard]] Part values(std::size_t sequence, std::size_t place, std::size_t count) const {
        if (!widths_.in_keys) return part_of(values_, sequence, place, count);
        auto const key = part_of(keys_, sequence, place, count);
        return Part(key.data(), Kokkos::LayoutStride(1, key.stride(0), count, key.stride(1), widths_.kv_heads,
                                                     key.stride(2), widths_.value, 1));
    }
    [[nodiscard]] KeptWidths const& widths() const { return widths_; }

  private:
    static constexpr auto cache = observe::Memory::caches;
    static Part part_of(Tensor<Key, Exec> const& all, std::size_t sequence, std::size_t place, std::size_t count) {
        auto const& local = all.local();
        std::size_t const row = local[2] * local[3];
        return Part(all.data() + (sequence * local[1] + place) * row,
                    Kokkos::LayoutStride(1, local[1] * row, count, row, local[2], local[3], local[3], 1));
    }

    Context<Exec> const* context_;
    KeptWidths widths_;
    std::size_t shards_, page_ = 1;
    Tensor<Key, Exec> keys_, values_;
};

/// Where the ranks along cp share a sequence, the queries of all of them go to each, which merges its own keys into
/// them; the partial results, (largest score, sum, output), come home as a maximum and sums.
/// @tparam Query, Key layouts `[batch, seq, heads, head_dim]`
template <class Query, class Key, class Exec>
class CachedAttention {
    using T = typename Query::element;
    using A = accumulator_t<T>;
    using Whole = unsharded_t<Query, ml::cp>;
    using Cache = KeyValueCache<Key, Exec>;
    using Numbers = typename detail::OfHeads<Query>::type;
    using Outputs = with_element_t<Query, A>;

  public:
    /// @param scale of the scores
    CachedAttention(LayerSetup<Exec> const& setup, Sight const& sight, model::Scores const& scores, double scale,
                    KeptWidths const& widths)
        : sight_(sight), scores_(scores), scale_(scale),
          cache_(setup.template sequence_state<Cache>(&setup.context, widths)) {}

    /// The outputs for these tokens, of which the keys and values are kept. Collective over cp.
    /// @param value empty where values are a part of the keys @param sinks may be empty
    Tensor<Query, Exec> forward(Pass<Exec> const& pass, Tensor<Query, Exec> const& query, Tensor<Key, Exec> const& key,
                                Tensor<Key, Exec> const& value, Tensor<sinks_t<Query>, Exec> const& sinks) const {
        auto const& ragged = *pass.ragged;
        auto const& cache = pass.sequences->of(cache_);
        ragged.for_each_run([&](TokenRun const& run) {
            if (run.shard == ragged.shard()) cache.keep(run, key, value);
        });
        auto extents = query.extents();
        extents[3] = cache.widths().value;
        Tensor<Query, Exec> output(pass.context, extents);
        if (ragged.shards() == 1)
            attend_alone(ragged, cache, query, sinks, output);
        else
            attend_together(ragged, cache, query, sinks, output);
        return output;
    }

  private:
    /// The keys that some token of a run sees.
    [[nodiscard]] PositionRange seen(TokenRun const& run) const {
        std::size_t const end = run.position + run.length;
        return {sight_.window > 0 && run.position + 1 > sight_.window ? run.position + 1 - sight_.window : 0, end};
    }
    [[nodiscard]] kernels::AttentionMask mask(TokenRun const& run, std::size_t key) const {
        return {.causal = true,
                .query_start = static_cast<i64>(run.position),
                .key_start = static_cast<i64>(key),
                .window = static_cast<i64>(sight_.window)};
    }
    /// f(place, position, count) for the keys among these that this rank has: runs of neighbours.
    template <class F>
    static void for_each_own(RaggedBatch<Exec> const& ragged, Cache const& cache, PositionRange const& keys, F&& f) {
        if (ragged.shards() == 1) return f(keys.begin, keys.begin, keys.end - keys.begin);
        std::size_t const page = ragged.room().page;
        for (std::size_t at = keys.begin; at < keys.end;) {
            std::size_t const next = std::min(keys.end, (at / page + 1) * page);
            if (at / page % ragged.shards() == ragged.shard()) f(cache.place(at), at, next - at);
            at = next;
        }
    }

    void attend_alone(RaggedBatch<Exec> const& ragged, Cache const& cache, Tensor<Query, Exec> const& query,
                      Tensor<sinks_t<Query>, Exec> const& sinks, Tensor<Query, Exec> const& output) const {
        auto const& context = query.context();
        auto const q = query.array();
        std::size_t const held = ragged.dealt().held(ragged.lane(), 0), rows = q.extent(1);
        if (observe::dry_run() == nullptr) // rows of no token
            memory::clear(context.exec(), output.data() + held * (output.size() / rows),
                          (rows - held) * (output.size() / rows) * sizeof(T));
        auto const scores = scores_of(query, scores_, scale_);
        detail::Scratch<A, 3, Exec> const lse(context, q.extent(0), q.extent(2), q.extent(1));
        ragged.for_each_run([&](TokenRun const& run) {
            Segment const here{0, run.first, run.length};
            auto const keys = seen(run);
            std::size_t const count = keys.end - keys.begin;
            kernels::attention_forward(
                context.exec(), detail::part(q, here), cache.keys(run.sequence, keys.begin, count),
                cache.values(run.sequence, keys.begin, count), scores, mask(run, keys.begin),
                detail::part(output.array(), here), detail::rows_part(lse.view, here), sinks.flat());
        });
    }

    void attend_together(RaggedBatch<Exec> const& ragged, Cache const& cache, Tensor<Query, Exec> const& query,
                         Tensor<sinks_t<Query>, Exec> const& sinks, Tensor<Query, Exec> const& output) const {
        auto const& context = query.context();
        auto const& exec = context.exec();
        auto const all = redistribute<Whole>(query);
        auto const q = all.array();
        auto const [batch, rows, heads, width] = output.extents();
        Tensor<typename pentad::detail::Unsharded<Numbers, ml::cp, PartialMax>::type, Exec> max(context,
                                                                                                {batch, heads, rows});
        Tensor<summands_t<Numbers, ml::cp>, Exec> sum(context, {batch, heads, rows});
        Tensor<summands_t<Outputs, ml::cp>, Exec> sums(context, {batch, rows, heads, width});
        kernels::AttentionState const state{max.array(), sum.array(), sums.array()};
        kernels::attention_start(exec, state);
        auto const scores = scores_of(all, scores_, scale_);
        ragged.for_each_run([&](TokenRun const& run) {
            Segment const here{0, ragged.row_of_lane(run), run.length};
            kernels::AttentionState const part{detail::rows_part(state.max, here), detail::rows_part(state.sum, here),
                                               detail::part(state.output, here)};
            for_each_own(ragged, cache, seen(run), [&](std::size_t place, std::size_t position, std::size_t count) {
                kernels::attention_accumulate(exec, detail::part(q, here), cache.keys(run.sequence, place, count),
                                              cache.values(run.sequence, place, count), scores, mask(run, position),
                                              part);
            });
        });
        auto const largest = redistribute<unsharded_t<Numbers, ml::cp>>(max);
        kernels::attention_rescale(exec, state, largest.array());
        auto const own_sum = redistribute<Numbers>(std::move(sum));
        auto const own = redistribute<Outputs>(std::move(sums));
        Segment const mine{0, ragged.shard() * ragged.dealt().rows(), ragged.dealt().rows()};
        detail::Scratch<A, 3, Exec> const lse(context, q.extent(0), q.extent(2), mine.length);
        kernels::AttentionState const merged{detail::rows_part(largest.array(), mine),
                                             detail::rows_part(own_sum.array(), {0, 0, mine.length}), own.array()};
        kernels::attention_finish(exec, merged, output.array(), lse.view, sinks.flat());
    }

    Sight sight_;
    model::Scores scores_;
    double scale_;
    StateKey<Cache> cache_;
};

/// A strategy of attention whose keys and values stay where they were made while sequences are being written.
struct KeepsKeys {
    template <class Query, class Key, class Exec>
    using Cached = CachedAttention<Query, Key, Exec>;
};

} // namespace pentad::context
