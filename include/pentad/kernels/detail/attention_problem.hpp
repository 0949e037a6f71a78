// What attention works on once shapes are checked: sizes, pointers and strides, and which key a query
// sees. Shared by the host and the device kernels, which then know nothing of Views.
#pragma once

#include <pentad/kernels/detail/heads.hpp>
#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

namespace pentad::kernels {

/// Which keys a query of a block sees. Positions are global, so that a block may be any part of a longer sequence:
/// query i sees key j iff not `causal`, or key_start + j <= query_start + i.
struct CausalOffset {
    bool causal = false;
    i64 query_start = 0;
    i64 key_start = 0;
};

namespace detail {

struct AttentionSizes {
    i64 batch, seq_q, seq_k, heads, kv_heads, head_dim;

    KOKKOS_FUNCTION i64 heads_per_kv() const { return heads / kv_heads; }
};

/// How many keys of the block query i sees: they are its first ones, since the mask is causal or nothing.
KOKKOS_INLINE_FUNCTION i64 visible_keys(CausalOffset const& mask, i64 seq_k, i64 query) {
    if (!mask.causal) return seq_k;
    i64 const count = mask.query_start + query - mask.key_start + 1;
    return count < 0 ? 0 : count < seq_k ? count : seq_k;
}

/// What one query block attends to.
template <class T>
struct AttentionProblem {
    AttentionSizes sizes;
    Heads<T const> q, k, v;
    double scale;
    CausalOffset mask;
};

/// The forward pass ends in one of two ways. Alone: the result is final.
template <class T>
struct WriteResult {
    Heads<T> o;
    accumulator_t<T>* lse; // [batch, heads, seq_q]
};

/// Or as one block of several: merged into the running state.
template <class T>
struct MergeState {
    accumulator_t<T>* max; // [batch, heads, seq_q]
    accumulator_t<T>* sum; // [batch, heads, seq_q]
    Heads<accumulator_t<T>> output;
};

/// What the backward pass reads and adds to besides the problem.
template <class T>
struct AttentionGradient {
    Heads<T const> d_o;
    accumulator_t<T> const* lse;   // [batch, heads, seq_q]
    accumulator_t<T> const* delta; // [batch, heads, seq_q]
    Heads<accumulator_t<T>> dq, dk, dv;
};

} // namespace detail
} // namespace pentad::kernels
