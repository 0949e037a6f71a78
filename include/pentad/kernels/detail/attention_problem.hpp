// What attention works on once shapes are checked: sizes, pointers and strides, and which key a query
// sees. Shared by the host and the device kernels, which then know nothing of Views.
#pragma once

#include <pentad/kernels/detail/attention_scores.hpp>
#include <pentad/kernels/detail/heads.hpp>
#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

namespace pentad::kernels {

/// Which keys a query sees. Positions are those in the whole sequence, so that a block may be any part of it: query i
/// of a block is at query_start + i, its key j at key_start + j. What a query sees begins and ends no earlier than what
/// the query before it sees.
struct AttentionMask {
    bool causal = false; ///< no key after the query
    i64 query_start = 0, key_start = 0;
    i64 window = 0; ///< the distance to a key is less (sliding-window attention: Beltagy et al. 2020); 0: any
    /// For query i of sequence b of the block, the positions at which its document begins and ends, at
    /// [b * sequence_stride + i]. Null: the sequence is one document. Ends are not read where the mask is causal.
    i32 const* document_begins = nullptr;
    i32 const* document_ends = nullptr;
    i64 sequence_stride = 0;
};

namespace detail {

struct AttentionSizes {
    i64 batch, seq_q, seq_k, heads, kv_heads;
    i64 head_dim;  ///< elements of a query or a key
    i64 value_dim; ///< elements of a value or an output

    KOKKOS_FUNCTION i64 heads_per_kv() const { return heads / kv_heads; }
};

/// Keys [begin, end) of a block.
struct VisibleKeys {
    i64 begin, end;
};

/// The keys of the block that a query sees; begin = end: none.
KOKKOS_INLINE_FUNCTION VisibleKeys visible_keys(AttentionMask const& mask, i64 seq_k, i64 batch, i64 query) {
    i64 const position = mask.query_start + query;
    i64 begin = mask.key_start, end = mask.key_start + seq_k;
    if (mask.causal && position + 1 < end) end = position + 1;
    if (mask.window > 0) {
        if (position + 1 - mask.window > begin) begin = position + 1 - mask.window;
        if (position + mask.window < end) end = position + mask.window;
    }
    i64 const at = batch * mask.sequence_stride + query;
    if (mask.document_begins != nullptr && mask.document_begins[at] > begin) begin = mask.document_begins[at];
    if (!mask.causal && mask.document_ends != nullptr && mask.document_ends[at] < end) end = mask.document_ends[at];
    begin -= mask.key_start;
    end -= mask.key_start;
    if (begin > seq_k) begin = seq_k;
    if (end < begin) end = begin;
    return {begin, end};
}

/// Keys that some query of a tile sees, from the start of a tile of keys.
KOKKOS_INLINE_FUNCTION VisibleKeys visible_to_tile(AttentionMask const& mask, i64 seq_k, i64 batch, i64 first_query,
                                                   int queries, int tile) {
    i64 const begin = visible_keys(mask, seq_k, batch, first_query).begin;
    return {begin / tile * tile, visible_keys(mask, seq_k, batch, first_query + queries - 1).end};
}

/// From a key to a query.
KOKKOS_INLINE_FUNCTION i64 distance(AttentionMask const& mask, i64 query, i64 key) {
    return mask.query_start + query - (mask.key_start + key);
}

/// Numbers of the queries, [batch, heads, seq_q], of which seq_q is contiguous.
template <class T>
struct QueryRows {
    T* data;
    i64 batch_stride, head_stride;

    KOKKOS_FUNCTION T* row(i64 batch, i64 head) const { return data + batch * batch_stride + head * head_stride; }
};

/// What one query block attends to.
template <class T>
struct AttentionProblem {
    AttentionSizes sizes;
    Heads<T const> q, k, v;
    AttentionScores scores;
    AttentionMask mask;
};

/// The forward pass ends in one of two ways. Alone: the result is final.
template <class T>
struct WriteResult {
    Heads<T> o;
    QueryRows<accumulator_t<T>> lse;
    T const* sinks = nullptr; ///< [heads]; null: none
};

/// How the softmax of a query ends: what its unnormalised output is multiplied with, and its log-sum-exp.
template <class Acc>
struct SoftmaxEnd {
    Acc factor, lse;
};
/// @param max, sum the largest score, and of exp(score - max)
template <class T, class Acc = accumulator_t<T>>
KOKKOS_INLINE_FUNCTION SoftmaxEnd<Acc> softmax_end(WriteResult<T> const& end, i64 head, Acc max, Acc sum) {
    constexpr Acc infinity = Kokkos::Experimental::infinity_v<Acc>;
    if (end.sinks == nullptr)
        return sum == Acc(0) ? SoftmaxEnd<Acc>{Acc(0), -infinity}
                             : SoftmaxEnd<Acc>{Acc(1) / sum, max + Kokkos::log(sum)};
    Acc const sink = Acc(end.sinks[head]);
    Acc const largest = max > sink ? max : sink;
    Acc const keep = sum == Acc(0) ? Acc(0) : Kokkos::exp(max - largest);
    Acc const total = sum * keep + Kokkos::exp(sink - largest);
    return {keep / total, largest + Kokkos::log(total)};
}

/// Or as one block of several: merged into the running state.
template <class T>
struct MergeState {
    QueryRows<accumulator_t<T>> max, sum;
    Heads<accumulator_t<T>> output;
};

/// What the backward pass reads and adds to besides the problem.
template <class T>
struct AttentionGradient {
    Heads<T const> d_o;
    QueryRows<accumulator_t<T> const> lse, delta;
    Heads<accumulator_t<T>> dq, dk, dv;
};

} // namespace detail
} // namespace pentad::kernels
