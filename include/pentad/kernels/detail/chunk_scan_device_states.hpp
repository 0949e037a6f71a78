// The states of a chunked scan at the boundaries between chunks, on a device, forward and backward: what each chunk
// adds, then a pass over the chunks for each element. Also the cumulative decays that the other kernels read.
#pragma once

#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/device_tiles.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::kernels::detail {

/// The decays of a head between the tokens of a chunk, as ChunkDecay has them on the host.
template <class Acc>
struct DeviceDecay {
    Acc* log; // of each token, cumulative from the chunk's start and with its own
    ChunkDocuments documents;

    KOKKOS_FUNCTION Acc log_at_end() const { return log[documents.tokens - 1]; }
    /// From the chunk's start up to and with a token; from behind a token to the chunk's end; both. Zero where a
    /// document begins between.
    KOKKOS_FUNCTION Acc from_start(int token) const {
        return documents.sees_before(token) ? Kokkos::exp(log[token]) : Acc(0);
    }
    KOKKOS_FUNCTION Acc to_end(int token) const {
        return documents.reaches_end(token) ? Kokkos::exp(log_at_end() - log[token]) : Acc(0);
    }
    KOKKOS_FUNCTION Acc whole() const { return documents.begin_here() ? Acc(0) : Kokkos::exp(log_at_end()); }
    /// From a key to a query that sees it.
    KOKKOS_FUNCTION Acc between(int key, int query) const { return Kokkos::exp(log[query] - log[key]); }
};

/// The log decay of each token, cumulative from its chunk's start and with its own: [batch, heads, seq]. It never
/// rises, so that differences from a later token to an earlier one are not positive. And the tokens' documents.
template <class Acc>
struct CumulativeDecay {
    Acc* data;
    ScanSizes sizes;
    i32 const* positions;

    KOKKOS_FUNCTION DeviceDecay<Acc> of_chunk(i64 head_of_batch, i64 chunk) const {
        return {data + head_of_batch * sizes.seq + chunk * sizes.chunk,
                documents_of(sizes, positions, head_of_batch / sizes.heads, chunk)};
    }
};

/// Numbers in the workspace for one value of each token and head, and for the states of all boundaries.
inline std::size_t device_tokens(ScanSizes const& sizes) {
    return static_cast<std::size_t>(sizes.batch * sizes.heads * sizes.seq);
}
inline std::size_t device_states(ScanSizes const& sizes) {
    return static_cast<std::size_t>(sizes.batch * sizes.heads * sizes.chunks() * sizes.state * sizes.head_dim);
}

/// One head of a sequence and one of its chunks.
struct ChunkPlace {
    i64 batch, head, group, chunk, start,
        index; ///< `start` is its first token, `index` the head's of all batch entries
};
KOKKOS_INLINE_FUNCTION ChunkPlace chunk_place(ScanSizes const& sizes, i64 item) {
    i64 const chunk = item % sizes.chunks(), index = item / sizes.chunks(), head = index % sizes.heads;
    return {index / sizes.heads, head, head / sizes.heads_per_group(), chunk, chunk * sizes.chunk, index};
}

/// The first tile of keys that a tile of queries from `query` on sees; and the first key that a query sees, in a tile
/// from `key` on.
KOKKOS_INLINE_FUNCTION int first_tile(ChunkDocuments const& documents, int query, int tile) {
    int const key = documents.first_seen(query);
    return key < 0 ? 0 : key / tile * tile;
}
KOKKOS_INLINE_FUNCTION int first_seen_from(ChunkDocuments const& documents, int query, int key) {
    int const first = documents.first_seen(query) - key;
    return first < 0 ? 0 : first;
}

/// One group of a sequence and one of its chunks.
struct GroupPlace {
    i64 batch, group, chunk, start;
};
KOKKOS_INLINE_FUNCTION GroupPlace group_place(ScanSizes const& sizes, i64 item) {
    i64 const chunk = item % sizes.chunks(), index = item / sizes.chunks();
    return {index / sizes.groups, index % sizes.groups, chunk, chunk * sizes.chunk};
}

template <class Exec, class Acc>
void sum_decays_device(Exec const& exec, Heads<Acc const> const& decay, CumulativeDecay<Acc> const& cumulative) {
    auto const sizes = cumulative.sizes;
    Kokkos::parallel_for(
        "pentad::chunk_scan_decays",
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, sizes.batch * sizes.heads * sizes.chunks()),
        KOKKOS_LAMBDA(i64 item) {
            auto const at = chunk_place(sizes, item);
            Acc* const to = cumulative.of_chunk(at.index, at.chunk).log;
            Acc sum = 0;
            for (int token = 0; token < sizes.length(at.chunk); ++token) {
                if (decay.data != nullptr) sum += *decay.row(at.batch, at.start + token, at.head);
                to[token] = sum;
            }
        });
}

/// What each chunk's tokens add to a state: the sum of x z^T, x of a group and z of a head, each with its decay to the
/// chunk's end or from its start.
template <class Exec, class T>
void add_to_states_device(Exec const& exec, Heads<T const> const& x, Heads<T const> const& z, bool to_end,
                          CumulativeDecay<accumulator_t<T>> const& cumulative,
                          ScanStates<accumulator_t<T>> const& states) {
    using Acc = accumulator_t<T>;
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;
    auto const sizes = cumulative.sizes;
    DeviceTiles<Exec, Acc> const shape(sizes.head_dim, 2, 1, 0);
    int const tile = shape.tile;
    int const row = shape.row;
    i64 const head_dim = sizes.head_dim;
    i64 const tiles = (sizes.state + tile - 1) / tile;
    auto const bytes = static_cast<std::ptrdiff_t>(shape.bytes);

    Kokkos::parallel_for(
        "pentad::chunk_scan_add_to_states",
        device_policy(exec, sizes.batch * sizes.heads * sizes.chunks() * tiles, shape.bytes),
        KOKKOS_LAMBDA(Member const& team) {
            Acc* const z_tile = static_cast<Acc*>(team.team_scratch(0).get_shmem(bytes));
            Acc* const sums = z_tile + tile * row;
            Acc* const x_tile = sums + tile * row;
            auto const at = chunk_place(sizes, team.league_rank() / tiles);
            i64 const first = team.league_rank() % tiles * tile;
            int const rows = static_cast<int>(sizes.state - first < tile ? sizes.state - first : tile);
            int const length = sizes.length(at.chunk);
            auto const decay = cumulative.of_chunk(at.index, at.chunk);

            clear_device_tile(team, rows, head_dim, sums, row);
            for (int token = 0; token < length; token += tile) {
                int const tokens = length - token < tile ? length - token : tile;
                team.team_barrier();
                load_device_tile(team, z.row(at.batch, at.start + token, at.head), z.seq_stride, tokens, head_dim,
                                 z_tile, row, Acc(1));
                Kokkos::parallel_for(Kokkos::TeamThreadRange(team, tokens), [&](int t) {
                    Acc const weight = to_end ? decay.to_end(token + t) : decay.from_start(token + t);
                    T const* const from = x.row(at.batch, at.start + token + t, at.group) + first;
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, rows),
                                         [&](int n) { x_tile[t * tile + n] = Acc(from[n]) * weight; });
                });
                team.team_barrier();
                Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int n) {
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, head_dim), [&](i64 d) {
                        Acc sum = sums[n * row + d];
                        for (int t = 0; t < tokens; ++t) sum += x_tile[t * tile + n] * z_tile[t * row + d];
                        sums[n * row + d] = sum;
                    });
                });
            }
            store_device_tile(team, sums, row, rows, head_dim, states.at(at.index, at.chunk) + first * head_dim,
                              head_dim);
        });
}

/// What chunks add becomes the states at their starts, or, from the last to the first, the gradients at their ends.
/// @param from the state before them all; null: zero @param to behind them all; null: not wanted
template <class Exec, class Acc>
void pass_states_device(Exec const& exec, bool forward, CumulativeDecay<Acc> const& cumulative,
                        ScanStates<Acc> const& states, Acc const* from, Acc* to) {
    auto const sizes = cumulative.sizes;
    i64 const chunks = sizes.chunks(), size = states.size;
    Kokkos::parallel_for(
        "pentad::chunk_scan_pass_states",
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, sizes.batch * sizes.heads * size),
        KOKKOS_LAMBDA(i64 i) {
            i64 const index = i / size;
            Acc value = from != nullptr ? from[i] : Acc(0);
            for (i64 c = 0; c < chunks; ++c) {
                i64 const chunk = forward ? c : chunks - 1 - c;
                Acc& slot = states.at(index, chunk)[i % size];
                Acc const added = slot;
                slot = value;
                value = value * cumulative.of_chunk(index, chunk).whole() + added;
            }
            if (to != nullptr) to[i] = value;
        });
}

template <class Exec, class Acc>
void sum_total_decay_device(Exec const& exec, CumulativeDecay<Acc> const& cumulative, Acc* total) {
    auto const sizes = cumulative.sizes;
    Kokkos::parallel_for(
        "pentad::chunk_scan_total_decay",
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, sizes.batch * sizes.heads), KOKKOS_LAMBDA(i64 i) {
            Acc sum = 0;
            for (i64 chunk = 0; chunk < sizes.chunks(); ++chunk) sum += cumulative.of_chunk(i, chunk).log_at_end();
            bool const is_cut = document_begins(sizes, cumulative.positions, i / sizes.heads);
            total[i] = is_cut ? -Kokkos::Experimental::infinity_v<Acc> : sum;
        });
}

} // namespace pentad::kernels::detail
