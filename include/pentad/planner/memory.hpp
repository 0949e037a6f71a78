// The memory of a rank: weights, gradients and optimizer state as ZeRO shards them, and
// what a micro-batch keeps from its forward pass to its backward pass.
#pragma once

#include <pentad/planner/buckets.hpp>
#include <pentad/planner/work.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pentad::planner {

/// Bytes of one rank.
struct Memory {
    double weights = 0, gradients = 0, optimizer = 0;
    double activations = 0; ///< of all micro-batches in flight
    double workspace = 0;   ///< what a pass needs beside them

    [[nodiscard]] double total() const { return weights + gradients + optimizer + activations + workspace; }
};

/// Bytes of an element's optimizer state: two moments, and a master where the weight is bf16 (Rajbhandari et al. 2020,
/// section 3.1: 12 bytes).
[[nodiscard]] constexpr double optimizer_size(Element element) {
    return (element == Element::bf16 ? 3 : 2) * accumulator_size(element);
}

/// Adds what a bucket takes.
inline void add_bucket(Memory& memory, Bucket const& bucket, Configuration const& c) {
    double const all = bucket.elements, shard = all / bucket.like.shards;
    memory.weights += size_of(c.element) * (c.zero >= 3 ? shard : all);
    memory.gradients += accumulator_size(c.element) * (c.zero >= 2 ? shard : all);
    memory.optimizer += optimizer_size(c.element) * (c.zero >= 1 ? shard : all);
}

/// What a layer keeps of one micro-batch; with full recomputation, its input.
inline double saved_by_layer(Model const& model, Configuration const& c, std::int64_t layer) {
    Work const work(model, c);
    double const tokens = work.tokens(), streamed = work.streamed(), tp = static_cast<double>(c.tp);
    double const h = static_cast<double>(model.hidden), size = size_of(c.element);
    double const scale = accumulator_size(c.element); // of what is kept in accumulators
    if (c.recompute == Recompute::full) return size * streamed * h;

    double const norm = size * streamed * h + scale * streamed; // its input and 1 / rms
    double saved = 0;
    if (auto const& a = model.attention; a.heads > 0) {
        double const own = static_cast<double>(a.heads) / tp;
        double const kv = work.kv_heads();
        double const keys = static_cast<double>(a.key_width()), values = static_cast<double>(a.value_width());
        double const latent = static_cast<double>(a.is_latent() ? a.query_rank + a.kv_rank + a.rope_dim : 0);
        saved += norm + size * tokens * (h + 2 * latent + own * (keys + values) + kv * (keys + values)) +
                 scale * tokens * own;
    } else if (auto const& m = model.mamba; m.heads > 0) {
        double const inner = static_cast<double>(m.inner()) / tp, heads = static_cast<double>(m.heads) / tp;
        double const mixed =
            inner + 2 * std::max(1.0, static_cast<double>(m.groups) / tp) * static_cast<double>(m.state);
        double const chunks = tokens / static_cast<double>(std::min(m.chunk, c.seq));
        saved += norm + size * tokens * (h + 2 * inner + 2 * mixed + inner) + scale * tokens * 2 * heads +
                 scale * chunks * heads * static_cast<double>(m.head_dim * m.state);
    }
    // Of the width of a feed-forward block: gate, up and what comes of them, which selective recomputation makes again.
    bool const gated = model.feed_forward == FeedForward::swiglu;
    double const widths = (gated ? 2 : 1) + (c.recompute == Recompute::selective ? 0 : 1);
    if (model.has_experts(layer)) {
        auto const& e = model.experts;
        double const rows = tokens * static_cast<double>(e.top_k) * e.imbalance;
        double const shared = static_cast<double>(e.shared * e.ffn);
        saved += norm + size * streamed * h + scale * streamed * static_cast<double>(e.count + 1) +
                 (4 + scale) * (streamed + tokens) * static_cast<double>(e.top_k) // choices and their weights
                 + 3 * 8 * rows                                                   // where each row comes from
                 + size * rows * (h + widths * static_cast<double>(e.ffn) / tp) +
                 size * tokens * ((shared > 0 ? h : 0) + widths * shared / tp);
    } else if (model.ffn > 0) {
        saved += norm + size * tokens * (h + widths * static_cast<double>(model.ffn) / tp);
    }
    return saved;
}

/// What is left of that between the two parts of a split backward pass: where a product kept its output it now has the
/// gradient of it, and that of what it gave to the stream.
inline double left_by_layer(Model const& model, Configuration const& c, std::int64_t layer) {
    Work const work(model, c);
    double const h = static_cast<double>(model.hidden), size = size_of(c.element);
    bool const has_feed_forward = model.ffn > 0 || model.has_experts(layer);
    double const of_block = size * h * (work.streamed() + work.tokens()); // of the norm, of the output
    double const of_rows =
        model.has_experts(layer) ? size * h * work.tokens() * static_cast<double>(model.experts.top_k) : 0;
    double const scores = accumulator_size(c.element) * work.tokens() * static_cast<double>(model.attention.heads) /
                          static_cast<double>(c.tp);
    auto kept = c;
    if (kept.recompute == Recompute::full) kept.recompute = Recompute::none;
    return saved_by_layer(model, kept, layer) + (has_feed_forward ? 2 : 1) * of_block + of_rows - scores;
}

/// What the last norm, the logits and the cross-entropy keep.
inline double saved_by_head(Model const& model, Configuration const& c) {
    Work const work(model, c);
    double const h = static_cast<double>(model.hidden), size = size_of(c.element);
    double const vocab = static_cast<double>((model.vocab + c.tp - 1) / c.tp);
    double const scale = accumulator_size(c.element);
    return size * (work.streamed() * h + work.tokens() * (h + vocab)) + scale * (work.streamed() + work.tokens());
}

inline double left_by_head(Model const& model, Configuration const& c) {
    return saved_by_head(model, c) + size_of(c.element) * Work(model, c).streamed() * static_cast<double>(model.hidden);
}
inline double left_by_embedding(Model const& model, Configuration const& c) {
    return size_of(c.element) * Work(model, c).tokens() * static_cast<double>(model.hidden);
}

/// What a pass holds for a while: gradients of the stream on their way, those inside a layer, keys and values
/// of other ranks; with full recomputation, also what one layer saves.
inline double workspace_of(Model const& model, Configuration const& c) {
    Work const work(model, c);
    double const h = static_cast<double>(model.hidden), tp = static_cast<double>(c.tp);
    double inner = 3 * static_cast<double>(model.ffn) / tp;
    if (auto const& e = model.experts; e.count > 0)
        inner = std::max(inner, static_cast<double>(e.top_k) * (2 * h + static_cast<double>(e.ffn) / tp));
    double bytes = size_of(c.element) * work.tokens() * (3 * h + inner);
    if (c.cp > 1) {
        // Keys and values that come by, and their gradients; a ring keeps what comes, what is here and what leaves.
        auto const& a = model.attention;
        double const pair = work.tokens() * work.kv_heads() * static_cast<double>(a.key_width() + a.value_width());
        double const n = static_cast<double>(c.cp);
        bool const goes_round = c.context == ContextStrategy::ring;
        bytes +=
            pair * (size_of(c.element) * (goes_round ? 2 : n) + accumulator_size(c.element) * (goes_round ? 4 : n + 1));
    }
    if (c.recompute == Recompute::full) {
        auto kept = c;
        kept.recompute = Recompute::none;
        double largest = 0;
        for (std::int64_t const layer : {model.experts.first, model.experts.first + model.experts.every - 1})
            largest = std::max(largest, saved_by_layer(model, kept, std::min(layer, model.layers - 1)));
        bytes += largest;
    }
    return bytes;
}

} // namespace pentad::planner
