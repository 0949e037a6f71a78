// The chunked scan on the host, forward: a thread takes some heads of a group through the chunks of a sequence, and the
// states go along.
#pragma once

#include <pentad/kernels/detail/chunk_scan_host_decay.hpp>
#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/host_tiles.hpp>
#include <pentad/kernels/detail/tile_product.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace pentad::kernels::detail {

/// What one thread does: heads [first_head, last_head) of a group.
struct ScanWork {
    i64 batch, group, first_head, last_head;
};

/// What the heads that a thread takes at once share are the scores; more of them would not leave their states in cache.
inline constexpr i64 most_heads_at_once = 8;

/// Calls f(work, scratch) for the heads of all groups, in items that leave work for all threads.
template <class Exec, class F>
void for_each_heads(char const* label, Exec const& exec, ScanSizes const& sizes, std::size_t scratch, F const& f) {
    i64 const per_group = sizes.heads_per_group();
    i64 const fair = sizes.batch * sizes.heads / exec.concurrency();
    i64 const at_once = std::clamp<i64>(fair, 1, std::min(most_heads_at_once, per_group));
    i64 const parts = (per_group + at_once - 1) / at_once;
    for_each_item(label, exec, sizes.batch * sizes.groups * parts, scratch, [=](i64 item, void* memory) {
        i64 const group = item / parts % sizes.groups;
        i64 const first = group * per_group + item % parts * at_once;
        f(ScanWork{item / parts / sizes.groups, group, first, std::min(first + at_once, (group + 1) * per_group)},
          memory);
    });
}

/// A state [state, head_dim] in rows of whole vectors, as it lies in the workspace.
template <class Acc>
i64 padded_state(ScanSizes const& sizes) {
    return static_cast<i64>(padded_dim<Acc>(sizes.state)) * padded_dim<Acc>(sizes.head_dim);
}
template <class Acc>
void load_state(ScanSizes const& sizes, Acc const* from, Acc* to) {
    int const rows = padded_dim<Acc>(sizes.state), columns = padded_dim<Acc>(sizes.head_dim);
    load_tile(from, sizes.head_dim, from == nullptr ? 0 : static_cast<int>(sizes.state), sizes.head_dim, to, rows,
              columns);
}
template <class Acc>
void store_state(ScanSizes const& sizes, Acc const* from, Acc* to) {
    store_tile(from, padded_dim<Acc>(sizes.head_dim), static_cast<int>(sizes.state), sizes.head_dim, to,
               sizes.head_dim);
}

/// to = decay from + the sum over tokens of x z^T, for x [tokens, state] and z [tokens, head_dim], whose rows have
/// their decays already. `to` may be `from`.
template <class Acc>
void step_state(ScanSizes const& sizes, int tokens, Acc decay, Acc const* x, Acc const* z, Acc const* from, Acc* to,
                RowsAhead& ahead) {
    int const rows = padded_dim<Acc>(sizes.state), columns = padded_dim<Acc>(sizes.head_dim);
    Vector<Acc> const by = broadcast(decay);
    for (i64 i = 0; i < static_cast<i64>(rows) * columns; i += lanes<Acc>) store(to + i, load(from + i) * by);
    for_each_row_block(static_cast<int>(sizes.state), [&](int begin, int end) {
        ahead.fetch();
        tile_product<Into::sum, Acc>(end - begin, columns, tokens, {x + begin, 1, rows}, {z, columns},
                                     {to + begin * columns, columns});
    });
}

template <class Acc>
struct ScanForwardScratch {
    ScanForwardScratch(void* memory, ScanSizes const& sizes) : ScanForwardScratch(TileScratch<Acc>(memory), sizes) {}

    Acc *q, *k, *k_transposed; // [tokens, state] of a group
    Acc* scores;               // [tokens, tokens] of a group
    Acc* mixed;                // [band_rows, tokens]: the scores of a head, with their decays
    Acc *v, *y;                // [tokens, head_dim] of a head
    ChunkDecay<Acc> decay;
    RowsAhead ahead;
    std::size_t bytes;

  private:
    ScanForwardScratch(TileScratch<Acc> pieces, ScanSizes const& sizes) : decay(pieces, padded_dim<Acc>(sizes.chunk)) {
        int const tokens = padded_dim<Acc>(sizes.chunk);
        for (Acc** piece : {&q, &k, &k_transposed}) *piece = pieces.tile(tokens * padded_dim<Acc>(sizes.state));
        scores = pieces.tile(tokens * tokens);
        mixed = pieces.tile(band_rows * tokens);
        for (Acc** piece : {&v, &y}) *piece = pieces.tile(tokens * padded_dim<Acc>(sizes.head_dim));
        bytes = pieces.bytes();
    }
};

/// y = the scores, with their decays, times v; added to what y holds.
template <class Acc>
void add_mixed(ScanForwardScratch<Acc>& tiles, int padded, int columns) {
    for (int begin = 0; begin < padded; begin += band_rows) {
        int const end = std::min(begin + band_rows, padded);
        Acc* const mixed = tiles.mixed;
        tiles.decay.for_each_block(begin, end, [&](auto, int row, int column, auto const& decay_of) {
            for (int r = 0; r < lanes<Acc>; ++r)
                store(mixed + (row + r - begin) * padded + column,
                      load(tiles.scores + (row + r) * padded + column) * decay_of(r));
        });
        clear_unseen(begin, end, padded, mixed);
        for_each_row_block(end - begin, [&](int first, int last) {
            tiles.ahead.fetch();
            tile_product<Into::sum, Acc>(last - first, columns, begin + last, {mixed + first * padded, padded, 1},
                                         {tiles.v, columns}, {tiles.y + (begin + first) * columns, columns});
        });
    }
}

/// The chunks of some heads in turn: outputs if `result.y` is given, and the states at the chunks' starts.
template <class T>
void scan_forward_work(ScanProblem<T> const& problem, ScanResult<T> const& result,
                       ScanStates<accumulator_t<T>> const& states, ScanWork const& work, void* memory) {
    using Acc = accumulator_t<T>;
    auto const& [sizes, q, k, v, decay, positions] = problem;
    int const state = static_cast<int>(sizes.state), head_dim = static_cast<int>(sizes.head_dim);
    int const rows = padded_dim<Acc>(state), columns = padded_dim<Acc>(head_dim);
    bool const has_outputs = result.y.data != nullptr;
    ScanForwardScratch<Acc> tiles(memory, sizes);

    for (i64 chunk = 0; chunk < sizes.chunks(); ++chunk) {
        i64 const start = chunk * sizes.chunk;
        int const tokens = sizes.length(chunk), padded = padded_dim<Acc>(tokens);
        auto const documents = documents_of(sizes, positions, work.batch, chunk);
        bool const is_last = chunk + 1 == sizes.chunks(),
                   is_zero = (chunk == 0 && result.initial == nullptr) || documents.is_first(0);
        bool const goes_on = !is_last || result.final_state != nullptr;
        load_tile(k.row(work.batch, start, work.group), k.seq_stride, tokens, state, tiles.k, padded, rows);
        if (has_outputs) {
            load_tile(q.row(work.batch, start, work.group), q.seq_stride, tokens, state, tiles.q, padded, rows);
            transpose_tile(tiles.k, padded, rows, tiles.k_transposed, Acc(1));
            visible_scores(0, padded, padded, state, tiles.q, rows, tiles.k_transposed, tiles.scores);
            clear_other_documents(documents, padded, tiles.scores);
        }
        for (i64 head = work.first_head; head < work.last_head; ++head) {
            tiles.ahead.start(row_blocks(state) + (has_outputs ? row_blocks(padded) : 0));
            if (head + 1 < work.last_head) {
                tiles.ahead.add(v.row(work.batch, start, head + 1), v.seq_stride, tokens, head_dim);
            } else if (!is_last) {
                i64 const next = start + sizes.chunk;
                int const more = sizes.length(chunk + 1);
                tiles.ahead.add(v.row(work.batch, next, work.first_head), v.seq_stride, more, head_dim);
                tiles.ahead.add(k.row(work.batch, next, work.group), k.seq_stride, more, state);
                if (has_outputs) tiles.ahead.add(q.row(work.batch, next, work.group), q.seq_stride, more, state);
            }
            i64 const index = work.batch * sizes.heads + head;
            Acc* const before = states.at(index, chunk);
            if (chunk == 0)
                load_state(sizes, result.initial ? result.initial + index * state * head_dim : nullptr, before);
            load_tile(v.row(work.batch, start, head), v.seq_stride, tokens, head_dim, tiles.v, padded, columns);
            Acc const* const log_decay = decay.data ? decay.row(work.batch, start, head) : nullptr;
            tiles.decay.set(log_decay, decay.seq_stride, tokens, padded);
            tiles.decay.cut(documents);
            if (has_outputs) {
                if (is_zero) {
                    std::fill(tiles.y, tiles.y + padded * columns, Acc(0));
                } else {
                    tile_product<Into::empty, Acc>(padded, columns, state, {tiles.q, rows, 1}, {before, columns},
                                                   {tiles.y, columns});
                    scale_rows(padded, columns, tiles.y, [&](int token) { return tiles.decay.from_start(token); });
                }
                add_mixed(tiles, padded, columns);
                store_tile(tiles.y, columns, tokens, head_dim, result.y.row(work.batch, start, head),
                           result.y.seq_stride);
            }
            if (goes_on) {
                scale_rows(padded, columns, tiles.v, [&](int token) { return tiles.decay.to_end(token); });
                Acc* const after = is_last ? before : states.at(index, chunk + 1);
                step_state(sizes, tokens, tiles.decay.whole(), tiles.k, tiles.v, before, after, tiles.ahead);
                if (is_last) store_state(sizes, after, result.final_state + index * state * head_dim);
            }
            if (result.total_decay != nullptr) {
                Acc sum = chunk == 0 ? Acc(0) : result.total_decay[index];
                for (int token = 0; log_decay != nullptr && token < tokens; ++token)
                    sum += log_decay[token * decay.seq_stride];
                bool const is_cut = is_last && document_begins(sizes, positions, work.batch);
                result.total_decay[index] = is_cut ? -std::numeric_limits<Acc>::infinity() : sum;
            }
        }
    }
}

template <class Exec, class T>
void scan_forward_host(Exec const& exec, ScanProblem<T> const& problem, ScanResult<T> const& result,
                       ScanStates<accumulator_t<T>> const& states) {
    for_each_heads(
        "pentad::chunk_scan_forward", exec, problem.sizes,
        ScanForwardScratch<accumulator_t<T>>(nullptr, problem.sizes).bytes,
        [=](ScanWork const& work, void* memory) { scan_forward_work(problem, result, states, work, memory); });
}

} // namespace pentad::kernels::detail
