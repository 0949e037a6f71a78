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

/// A state [state, head_dim] in rows of whole operands, as it lies in the workspace.
template <class In>
i64 padded_state(ScanSizes const& sizes) {
    return static_cast<i64>(padded_dim<In>(sizes.state)) * padded_dim<In>(sizes.head_dim);
}
template <class In, class Acc = sum_of<In>>
void load_state(ScanSizes const& sizes, Acc const* from, Acc* to) {
    load_tile(from, sizes.head_dim, from == nullptr ? 0 : static_cast<int>(sizes.state), sizes.head_dim, to,
              padded_dim<In>(sizes.state), padded_dim<In>(sizes.head_dim));
}
template <class In, class Acc = sum_of<In>>
void store_state(ScanSizes const& sizes, Acc const* from, Acc* to) {
    store_tile(from, padded_dim<In>(sizes.head_dim), static_cast<int>(sizes.state), sizes.head_dim, to, sizes.head_dim);
}
/// A state as an operand across. @param memory for one that differs from the state
template <class In>
In const* state_across(ScanSizes const& sizes, sum_of<In> const* state, In* memory) {
    if constexpr (depth_of<In> == 1) {
        return state;
    } else {
        to_across(state, padded_dim<In>(sizes.state), padded_dim<In>(sizes.head_dim), memory);
        return memory;
    }
}

/// to = decay from + the sum over tokens of x z^T, for x [tokens, state] and z [tokens, head_dim], both across, of rows
/// that have their decays already. `to` may be `from`.
template <class In, class Acc = sum_of<In>>
void step_state(ScanSizes const& sizes, int tokens, Acc decay, In const* x, In const* z, Acc const* from, Acc* to,
                RowsAhead& ahead) {
    int const rows = padded_dim<In>(sizes.state), columns = padded_dim<In>(sizes.head_dim);
    Vector<Acc> const by = broadcast(decay);
    for (i64 i = 0; i < static_cast<i64>(rows) * columns; i += lanes<Acc>) store(to + i, load(from + i) * by);
    for_each_row_block(static_cast<int>(sizes.state), [&](int begin, int end) {
        ahead.fetch();
        tile_product<Into::sum, In>(end - begin, columns, operands<In>(tokens), {x + begin, 1, rows}, {z, columns},
                                    {to + begin * columns, columns});
    });
}

template <class In, class Acc = sum_of<In>>
struct ScanForwardScratch {
    ScanForwardScratch(void* memory, ScanSizes const& sizes) : ScanForwardScratch(TileScratch(memory), sizes) {}

    In *q, *k;        // along, [tokens, state] of a group
    In* k_across;     // k; where an operand is one number the same memory, as below
    In* k_transposed; // across, [state, tokens]
    Acc* scores;      // [tokens, tokens] of a group
    In* mixed;        // along, [band_rows, tokens]: the scores of a head, with their decays
    In *v, *v_across; // [tokens, head_dim] of a head
    In* state;        // across, [state, head_dim]; only where states are no operands
    Acc* y;           // [tokens, head_dim]
    ChunkDecay<Acc> decay;
    RowsAhead ahead;
    std::size_t bytes;

  private:
    ScanForwardScratch(TileScratch pieces, ScanSizes const& sizes) : decay(pieces, padded_dim<In>(sizes.chunk)) {
        constexpr int depth = depth_of<In>;
        int const tokens = padded_dim<In>(sizes.chunk);
        int const rows = padded_dim<In>(sizes.state), columns = padded_dim<In>(sizes.head_dim);
        pieces.take(tokens * rows / depth, q, k, k_transposed);
        pieces.take(tokens * tokens, scores);
        pieces.take(band_rows * tokens / depth, mixed);
        pieces.take(tokens * columns / depth, v);
        pieces.take(tokens * columns, y);
        k_across = pieces.across(tokens * rows, k);
        v_across = pieces.across(tokens * columns, v);
        state = pieces.across<In>(rows * columns, nullptr);
        bytes = pieces.bytes();
    }
};

/// y = the scores, with their decays, times v; added to what y holds.
template <class In>
void add_mixed(ScanForwardScratch<In>& tiles, int padded, int columns) {
    using Acc = sum_of<In>;
    constexpr int depth = depth_of<In>;
    for (int begin = 0; begin < padded; begin += band_rows) {
        int const end = std::min(begin + band_rows, padded);
        auto const mixed = [&](int row, int column) { return tiles.mixed + ((row - begin) * padded + column) / depth; };
        tiles.decay.for_each_block(begin, end, [&](auto, int row, int column, auto const& decay_of) {
            for (int r = 0; r < lanes<Acc>; r += depth) {
                Vector<Acc> weighed[depth];
                PENTAD_UNROLL(2)
                for (int i = 0; i < depth; ++i)
                    weighed[i] = load(tiles.scores + (row + r + i) * padded + column) * decay_of(r + i);
                Operand<In>::store_along(mixed(row + r, column), padded / depth, weighed);
            }
        });
        for_each_unseen<Acc, depth>(begin, end, padded, [&](int row, int column) {
            Operand<In>::store_along(mixed(row, column), padded / depth, {});
        });
        for_each_row_block(end - begin, [&](int first, int last) {
            tiles.ahead.fetch();
            tile_product<Into::sum, In>(last - first, columns, operands<In>(begin + last),
                                        {mixed(begin + first, 0), padded / depth, 1}, {tiles.v_across, columns},
                                        {tiles.y + (begin + first) * columns, columns});
        });
    }
}

/// The chunks of some heads in turn: outputs if `result.y` is given, and the states at the chunks' starts.
template <class In, class T>
void scan_forward_work(ScanProblem<T> const& problem, ScanResult<T> const& result,
                       ScanStates<accumulator_t<T>> const& states, ScanWork const& work, void* memory) {
    using Acc = accumulator_t<T>;
    constexpr int depth = depth_of<In>;
    auto const& [sizes, q, k, v, decay, positions] = problem;
    int const state = static_cast<int>(sizes.state), head_dim = static_cast<int>(sizes.head_dim);
    int const rows = padded_dim<In>(state), columns = padded_dim<In>(head_dim);
    bool const has_outputs = result.y.data != nullptr;
    ScanForwardScratch<In> tiles(memory, sizes);

    for (i64 chunk = 0; chunk < sizes.chunks(); ++chunk) {
        i64 const start = chunk * sizes.chunk;
        int const tokens = sizes.length(chunk), padded = padded_dim<In>(tokens);
        auto const documents = documents_of(sizes, positions, work.batch, chunk);
        bool const is_last = chunk + 1 == sizes.chunks(),
                   is_zero = (chunk == 0 && result.initial == nullptr) || documents.is_first(0);
        bool const goes_on = !is_last || result.final_state != nullptr;
        load_tile(k.row(work.batch, start, work.group), k.seq_stride, tokens, state, tiles.k, padded, rows);
        if (has_outputs) {
            load_tile(q.row(work.batch, start, work.group), q.seq_stride, tokens, state, tiles.q, padded, rows);
            transpose_tile(tiles.k, padded, rows / depth, tiles.k_transposed);
            visible_scores(0, padded, padded, state, tiles.q, rows, tiles.k_transposed, tiles.scores);
            clear_other_documents(documents, padded, tiles.scores);
        }
        if (goes_on) turn_depth(tiles.k, padded, rows, tiles.k_across);
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
                load_state<In>(sizes, result.initial ? result.initial + index * state * head_dim : nullptr, before);
            load_tile(v.row(work.batch, start, head), v.seq_stride, tokens, head_dim, tiles.v, padded, columns);
            Acc const* const log_decay = decay.data ? decay.row(work.batch, start, head) : nullptr;
            tiles.decay.set(log_decay, decay.seq_stride, tokens, padded);
            tiles.decay.cut(documents);
            if (has_outputs) {
                if (is_zero) {
                    std::fill(tiles.y, tiles.y + padded * columns, Acc(0));
                } else {
                    tile_product<Into::empty, In>(padded, columns, operands<In>(state), {tiles.q, rows / depth, 1},
                                                  {state_across(sizes, before, tiles.state), columns},
                                                  {tiles.y, columns});
                    scale_rows(padded, columns, tiles.y, [&](int token) { return tiles.decay.from_start(token); });
                }
                turn_depth(tiles.v, padded, columns, tiles.v_across);
                add_mixed(tiles, padded, columns);
                store_tile(tiles.y, columns, tokens, head_dim, result.y.row(work.batch, start, head),
                           result.y.seq_stride);
            }
            if (goes_on) {
                scale_rows(padded, columns, tiles.v, [&](int token) { return tiles.decay.to_end(token); });
                Acc* const after = is_last ? before : states.at(index, chunk + 1);
                turn_depth(tiles.v, padded, columns, tiles.v_across);
                step_state(sizes, tokens, tiles.decay.whole(), tiles.k_across, tiles.v_across, before, after,
                           tiles.ahead);
                if (is_last) store_state<In>(sizes, after, result.final_state + index * state * head_dim);
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

/// @tparam In what products take: numbers of accumulator_t<T>, or what operand_t<T> says
template <class In, class Exec, class T>
void scan_forward_host(Exec const& exec, ScanProblem<T> const& problem, ScanResult<T> const& result,
                       ScanStates<accumulator_t<T>> const& states) {
    for_each_heads(
        "pentad::chunk_scan_forward", exec, problem.sizes, ScanForwardScratch<In>(nullptr, problem.sizes).bytes,
        [=](ScanWork const& work, void* memory) { scan_forward_work<In>(problem, result, states, work, memory); });
}

} // namespace pentad::kernels::detail
