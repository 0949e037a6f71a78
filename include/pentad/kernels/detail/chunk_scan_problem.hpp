// What a chunked scan works on once shapes are checked: sizes, pointers and strides. Shared by the host and the device
// kernels, which then know nothing of Views.
#pragma once

#include <pentad/kernels/detail/heads.hpp>
#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>

namespace pentad::kernels {

/// The extents of a scan, and the chunks that it is cut into: the last one of a sequence may be shorter.
struct ScanSizes {
    i64 batch, seq, heads;
    i64 groups; ///< of heads that share q and k
    i64 state, head_dim;
    i64 chunk; ///< tokens, up to longest_chunk; one that is longer than `seq` is the sequence

    KOKKOS_FUNCTION i64 heads_per_group() const { return heads / groups; }
    KOKKOS_FUNCTION i64 chunks() const { return (seq + chunk - 1) / chunk; }
    /// Tokens of chunk `c`.
    KOKKOS_FUNCTION int length(i64 c) const {
        return static_cast<int>(seq - c * chunk < chunk ? seq - c * chunk : chunk);
    }
};

/// A thread's scratch grows with the square of a chunk.
inline constexpr i64 longest_chunk = 4096;

namespace detail {

/// Floating-point operations of a scan's products; of the scores the visible half counts.
struct ScanFlops {
    double pairs;  ///< of a query and a key of its chunk that it sees, times 2
    double scores; ///< q k^T, of all groups
    double mixed;  ///< a product of scores with head_dim numbers each, of all heads
    double states; ///< a product of tokens and states, of all heads

    explicit ScanFlops(ScanSizes const& of) {
        auto const number = [](i64 n) { return static_cast<double>(n); };
        auto const in_chunk = [&](i64 length) { return number(length) * number(length + 1); };
        i64 const whole = of.seq / of.chunk;
        pairs = number(of.batch) * (number(whole) * in_chunk(of.chunk) + in_chunk(of.seq - whole * of.chunk));
        scores = pairs * number(of.groups * of.state);
        mixed = pairs * number(of.heads * of.head_dim);
        states = 2 * number(of.batch * of.seq) * number(of.heads * of.state * of.head_dim);
    }
    [[nodiscard]] double forward() const { return scores + mixed + 2 * states; }
    /// The scores again and the two products with their gradient; dy v^T and the scores' with dy; the states again, and
    /// what they contribute to the gradients of q, k, v and of each other.
    [[nodiscard]] double backward() const { return 3 * scores + 2 * mixed + 5 * states; }
};

/// The documents that the tokens of a chunk are of. What is not seen is told by comparing indices: no decay stands for
/// it.
struct ChunkDocuments {
    i32 const* positions; // of the chunk's tokens; null: all are of a document that began before the chunk
    int tokens;

    /// The first token that token `token` sees. Negative: the state at the chunk's start counts.
    KOKKOS_FUNCTION int first_seen(int token) const { return positions == nullptr ? -1 : token - positions[token]; }
    KOKKOS_FUNCTION bool sees_before(int token) const { return first_seen(token) < 0; }
    KOKKOS_FUNCTION bool is_first(int token) const { return first_seen(token) == token; }
    /// Whether what token `token` adds to the state is in that at the chunk's end.
    KOKKOS_FUNCTION bool reaches_end(int token) const { return token >= first_seen(tokens - 1); }
    /// Whether one begins in the chunk, so that the state at its start does not get to its end.
    KOKKOS_FUNCTION bool begin_here() const { return first_seen(tokens - 1) >= 0; }
};

/// What is scanned. Without a decay `decay.data` is null; its rows are [batch, seq, heads] of one number.
template <class T>
struct ScanProblem {
    ScanSizes sizes;
    Heads<T const> q, k, v;
    Heads<accumulator_t<T> const> decay;
    i32 const* positions; // [batch, seq], of tokens in their documents; null: one document, which began before
};

KOKKOS_INLINE_FUNCTION ChunkDocuments documents_of(ScanSizes const& sizes, i32 const* positions, i64 batch, i64 chunk) {
    return {positions == nullptr ? nullptr : positions + batch * sizes.seq + chunk * sizes.chunk, sizes.length(chunk)};
}
/// Whether a document begins among all tokens of a sequence.
KOKKOS_INLINE_FUNCTION bool document_begins(ScanSizes const& sizes, i32 const* positions, i64 batch) {
    return positions != nullptr && positions[(batch + 1) * sizes.seq - 1] < sizes.seq;
}

/// States [batch, heads, boundary, size] in the workspace: of each boundary between chunks, or one that goes along.
template <class Acc>
struct ScanStates {
    Acc* data;
    i64 boundaries, size;

    KOKKOS_FUNCTION Acc* at(i64 head_of_batch, i64 chunk) const {
        return data + (head_of_batch * boundaries + (boundaries > 1 ? chunk : 0)) * size;
    }
};

/// What the forward pass writes. Null: not given, not wanted.
template <class T>
struct ScanResult {
    using Acc = accumulator_t<T>;
    Acc const* initial; // [batch, heads, state, head_dim], as the final state
    Heads<T> y;
    Acc* final_state;
    Acc* total_decay; // [batch, heads]
};

/// What the backward pass reads and writes besides the problem. Null: not given, not wanted.
template <class T>
struct ScanGradient {
    using Acc = accumulator_t<T>;
    Heads<T const> dy;
    Acc const* initial; // [batch, heads, state, head_dim], as the next two
    Acc const* d_final;
    Acc* d_initial;
    Heads<Acc> dq, dk, dv, da;
};

} // namespace detail
} // namespace pentad::kernels
