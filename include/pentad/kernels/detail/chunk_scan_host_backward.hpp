// The chunked scan on the host, backward: the states at the chunks' starts again, then the chunks from the last to the
// first, each with the gradient of the state behind it. One thread owns whatever it writes: the same bits each run.
#pragma once

#include <pentad/kernels/detail/chunk_scan_host_decay.hpp>
#include <pentad/kernels/detail/chunk_scan_host_forward.hpp>
#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/host_tiles.hpp>
#include <pentad/kernels/detail/tile_product.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace pentad::kernels::detail {

/// The states at the chunks' starts, and the gradients of those at their ends.
template <class Acc>
struct BoundaryStates {
    ScanStates<Acc> states, gradients;
};

template <class Acc>
struct ScanBackwardScratch {
    ScanBackwardScratch(void* memory, ScanSizes const& sizes) : ScanBackwardScratch(TileScratch<Acc>(memory), sizes) {}

    Acc *q, *k, *k_transposed, *dq, *dk;   // [tokens, state] of a group
    Acc* product;                          // [tokens, state] of a head
    Acc *scores, *d_scores;                // [tokens, tokens] of a group
    Acc* mixed;                            // [band_rows, tokens] of a head: dy v^T, then the scores with their decays
    Acc *v, *dy, *dv, *v_transposed;       // [tokens, head_dim] of a head
    Acc* state_transposed;                 // [head_dim, state]
    Acc *of_rows, *of_columns, *of_states; // [tokens]: what the gradient of the decay is made of
    Acc* row_sums;                         // [tokens, lanes]
    ChunkDecay<Acc> decay;
    std::size_t bytes;

  private:
    ScanBackwardScratch(TileScratch<Acc> pieces, ScanSizes const& sizes) : decay(pieces, padded_dim<Acc>(sizes.chunk)) {
        int const tokens = padded_dim<Acc>(sizes.chunk);
        int const rows = padded_dim<Acc>(sizes.state), columns = padded_dim<Acc>(sizes.head_dim);
        for (Acc** piece : {&q, &k, &k_transposed, &dq, &dk, &product}) *piece = pieces.tile(tokens * rows);
        for (Acc** piece : {&scores, &d_scores}) *piece = pieces.tile(tokens * tokens);
        mixed = pieces.tile(band_rows * tokens);
        for (Acc** piece : {&v, &dy, &dv, &v_transposed}) *piece = pieces.tile(tokens * columns);
        state_transposed = pieces.tile(rows * columns);
        for (Acc** piece : {&of_rows, &of_columns, &of_states}) *piece = pieces.tile(tokens);
        row_sums = pieces.tile(tokens * lanes<Acc>);
        bytes = pieces.bytes();
    }
};

/// The decays of rows [begin, end): `mixed`, which holds dy v^T, becomes the scores with their decays; d_scores the
/// gradient of the scores, added up over the heads. of_columns and row_sums get the sums of the two's product below the
/// diagonal: what a token's cumulative decay contributes on it cancels.
template <bool is_first, class Acc>
void weigh_scores(ScanBackwardScratch<Acc> const& tiles, int begin, int end, int padded) {
    constexpr int width = lanes<Acc>;
    tiles.decay.for_each_block(begin, end, [&](auto on_diagonal, int row, int column, auto const& decay_of) {
        Vector<Acc> of_columns = load(tiles.of_columns + column);
        for (int r = 0; r < width; ++r) {
            int const at = (row + r) * padded + column;
            Acc* const mixed = tiles.mixed + at - begin * padded;
            Vector<Acc> const weight = decay_of(r), score = load(tiles.scores + at), slope = load(mixed) * weight;
            store(mixed, score * weight);
            if constexpr (is_first)
                store(tiles.d_scores + at, slope);
            else
                store(tiles.d_scores + at, load(tiles.d_scores + at) + slope);
            Vector<Acc> both = score * slope;
            if constexpr (on_diagonal) both = ChunkDecay<Acc>::up_to(r - 1) ? both : Vector<Acc>{};
            of_columns += both;
            Acc* const of_row = tiles.row_sums + (row + r) * width;
            store(of_row, column == 0 ? both : load(of_row) + both);
        }
        store(tiles.of_columns + column, of_columns);
    });
    for (int row = begin; row < end; ++row) {
        Acc sum = 0;
        for (int lane = 0; lane < width; ++lane) sum += tiles.row_sums[row * width + lane];
        tiles.of_rows[row] = sum;
    }
}

/// dv += (the scores with their decays)^T dy, and the gradient of the scores, both for the tokens of one head.
template <class Acc>
void add_pairs(ScanBackwardScratch<Acc> const& tiles, int padded, int head_dim, int columns, bool is_first) {
    for (int begin = 0; begin < padded; begin += band_rows) {
        int const end = std::min(begin + band_rows, padded);
        visible_scores(begin, end, padded, head_dim, tiles.dy, columns, tiles.v_transposed, tiles.mixed);
        if (is_first)
            weigh_scores<true>(tiles, begin, end, padded);
        else
            weigh_scores<false>(tiles, begin, end, padded);
        clear_unseen(begin, end, padded, tiles.mixed);
        for_each_row_block(end, [&](int first, int last) {
            int const from = std::max(first, begin);
            tile_product<Into::sum, Acc>(last - first, columns, end - from,
                                         {tiles.mixed + (from - begin) * padded + first, 1, padded},
                                         {tiles.dy + from * columns, columns}, {tiles.dv + first * columns, columns});
        });
    }
}

/// to = product = x state^T for x [tokens, head_dim] and a state [state, head_dim].
template <class Acc>
void times_state(ScanBackwardScratch<Acc> const& tiles, int padded, int head_dim, int rows, int columns, Acc const* x,
                 Acc const* state) {
    transpose_tile(state, rows, columns, tiles.state_transposed, Acc(1));
    tile_product<Into::empty, Acc>(padded, rows, head_dim, {x, columns, 1}, {tiles.state_transposed, rows},
                                   {tiles.product, rows});
}

template <class Acc>
Acc vector_sum(Vector<Acc> const& vector) {
    Acc sum = 0;
    for (int lane = 0; lane < lanes<Acc>; ++lane) sum += vector[lane];
    return sum;
}

/// sum += factor x, and the sum over `extent` of y times what is added.
template <class Acc>
Acc add_and_dot(int extent, Acc factor, Acc const* x, Acc const* y, Acc* sum) {
    Vector<Acc> total{};
    for (int i = 0; i < extent; i += lanes<Acc>) {
        auto const added = load(x + i) * factor;
        store(sum + i, load(sum + i) + added);
        total += added * load(y + i);
    }
    return vector_sum<Acc>(total);
}

/// The gradient of the log decays of a chunk's tokens. That of the cumulative decay up to token t is <y_t, dy_t> -
/// <v_t, dv_t>, and a token's own decay is in all cumulative ones from it on. Here the pairs that a token's decay lies
/// between are summed: `across` from states before the chunk to what comes behind it; of_states from keys before the
/// token to behind the chunk; of_rows and of_columns within it, and from before the chunk to queries.
template <class Acc>
void store_decay_gradient(ScanBackwardScratch<Acc> const& tiles, int tokens, Acc across, Acc* to, i64 stride) {
    Acc before = across, after = 0;
    for (int token = 0; token < tokens; before += tiles.of_states[token++]) to[token * stride] = before;
    for (int token = tokens - 1; token >= 0; --token)
        to[token * stride] += after += tiles.of_rows[token] - tiles.of_columns[token];
}

template <class T>
class ScanBackward {
  public:
    using Acc = accumulator_t<T>;

    ScanBackward(ScanProblem<T> const& problem, ScanGradient<T> const& gradient, BoundaryStates<Acc> const& boundary)
        : problem_(problem), gradient_(gradient), boundary_(boundary), state_(static_cast<int>(problem.sizes.state)),
          head_dim_(static_cast<int>(problem.sizes.head_dim)), rows_(padded_dim<Acc>(state_)),
          columns_(padded_dim<Acc>(head_dim_)) {}

    std::size_t scratch_bytes() const { return ScanBackwardScratch<Acc>(nullptr, problem_.sizes).bytes; }

    /// The gradients of one chunk, of all heads of a group. @param passes the gradient of the state on, to before it
    void chunk(i64 batch, i64 group, i64 chunk, bool passes, void* memory) const {
        auto const& [sizes, q, k, v, decay] = problem_;
        ScanBackwardScratch<Acc> tiles(memory, sizes);
        i64 const start = chunk * sizes.chunk;
        int const tokens = sizes.length(chunk), padded = padded_dim<Acc>(tokens);
        load_tile(q.row(batch, start, group), q.seq_stride, tokens, state_, tiles.q, padded, rows_);
        load_tile(k.row(batch, start, group), k.seq_stride, tokens, state_, tiles.k, padded, rows_);
        transpose_tile(tiles.k, padded, rows_, tiles.k_transposed, Acc(1));
        visible_scores(0, padded, padded, state_, tiles.q, rows_, tiles.k_transposed, tiles.scores);
        for (Acc* sums : {tiles.dq, tiles.dk}) std::fill(sums, sums + padded * rows_, Acc(0));

        i64 const first = group * sizes.heads_per_group();
        for (i64 head = first; head < first + sizes.heads_per_group(); ++head)
            add_head(tiles, batch, head, chunk, head == first, passes);

        clear_unseen(0, padded, padded, tiles.d_scores);
        for_each_row_block(padded, [&](int begin, int end) {
            tile_product<Into::sum, Acc>(end - begin, rows_, end, {tiles.d_scores + begin * padded, padded, 1},
                                         {tiles.k, rows_}, {tiles.dq + begin * rows_, rows_});
            tile_product<Into::sum, Acc>(end - begin, rows_, padded - begin,
                                         {tiles.d_scores + begin * padded + begin, 1, padded},
                                         {tiles.q + begin * rows_, rows_}, {tiles.dk + begin * rows_, rows_});
        });
        store_tile(tiles.dq, rows_, tokens, state_, gradient_.dq.row(batch, start, group), gradient_.dq.seq_stride);
        store_tile(tiles.dk, rows_, tokens, state_, gradient_.dk.row(batch, start, group), gradient_.dk.seq_stride);
    }

    /// Only the gradients of the states at the ends of all chunks, of some heads, and of the initial state.
    void states(ScanWork const& work, void* memory) const {
        auto const& sizes = problem_.sizes;
        ScanBackwardScratch<Acc> tiles(memory, sizes);
        for (i64 chunk = sizes.chunks(); chunk-- > 0;) {
            i64 const start = chunk * sizes.chunk;
            int const tokens = sizes.length(chunk), padded = padded_dim<Acc>(tokens);
            load_tile(problem_.q.row(work.batch, start, work.group), problem_.q.seq_stride, tokens, state_, tiles.q,
                      padded, rows_);
            for (i64 head = work.first_head; head < work.last_head; ++head) {
                load_head(tiles, work.batch, head, chunk);
                pass_on(tiles, work.batch, head, chunk);
            }
        }
    }

  private:
    /// dy, the decays, and after the last chunk the gradient of the final state.
    void load_head(ScanBackwardScratch<Acc>& tiles, i64 batch, i64 head, i64 chunk) const {
        auto const& sizes = problem_.sizes;
        auto const& decay = problem_.decay;
        i64 const start = chunk * sizes.chunk, index = batch * sizes.heads + head;
        int const tokens = sizes.length(chunk), padded = padded_dim<Acc>(tokens);
        load_tile(gradient_.dy.row(batch, start, head), gradient_.dy.seq_stride, tokens, head_dim_, tiles.dy, padded,
                  columns_);
        tiles.decay.set(decay.data ? decay.row(batch, start, head) : nullptr, decay.seq_stride, tokens, padded);
        if (chunk + 1 == sizes.chunks())
            load_state(sizes, gradient_.d_final ? gradient_.d_final + index * state_ * head_dim_ : nullptr,
                       boundary_.gradients.at(index, chunk));
    }
    /// The gradient of the state before the chunk: of that behind it, decayed, and of what the queries read. Multiplies
    /// dy with the decays.
    void pass_on(ScanBackwardScratch<Acc> const& tiles, i64 batch, i64 head, i64 chunk) const {
        auto const& sizes = problem_.sizes;
        i64 const index = batch * sizes.heads + head;
        if (chunk == 0 && gradient_.d_initial == nullptr) return;
        Acc const* const behind = boundary_.gradients.at(index, chunk);
        Acc* const before = boundary_.gradients.at(index, std::max<i64>(chunk - 1, 0));
        int const tokens = sizes.length(chunk);
        scale_rows(tokens, columns_, tiles.dy, [&](int token) { return tiles.decay.from_start(token); });
        if (chunk > 0) {
            step_state(sizes, tokens, tiles.decay.whole(), tiles.q, tiles.dy, behind, before);
        } else {
            step_state(sizes, tokens, tiles.decay.whole(), tiles.q, tiles.dy, behind, tiles.state_transposed);
            store_state(sizes, tiles.state_transposed, gradient_.d_initial + index * state_ * head_dim_);
        }
    }

    void add_head(ScanBackwardScratch<Acc>& tiles, i64 batch, i64 head, i64 chunk, bool is_first, bool passes) const {
        auto const& sizes = problem_.sizes;
        i64 const start = chunk * sizes.chunk, index = batch * sizes.heads + head;
        int const tokens = sizes.length(chunk), padded = padded_dim<Acc>(tokens);
        bool const has_before = chunk > 0 || gradient_.initial != nullptr,
                   has_behind = chunk + 1 < sizes.chunks() || gradient_.d_final != nullptr;
        load_head(tiles, batch, head, chunk);
        load_tile(problem_.v.row(batch, start, head), problem_.v.seq_stride, tokens, head_dim_, tiles.v, padded,
                  columns_);
        transpose_tile(tiles.v, padded, columns_, tiles.v_transposed, Acc(1));
        for (Acc* sums : {tiles.of_columns, tiles.of_states}) std::fill(sums, sums + padded, Acc(0));

        Acc const* const before = boundary_.states.at(index, chunk);
        Acc const* const behind = boundary_.gradients.at(index, chunk);
        if (has_behind) {
            tile_product<Into::empty, Acc>(padded, columns_, state_, {tiles.k, rows_, 1}, {behind, columns_},
                                           {tiles.dv, columns_});
            for (int token = 0; token < padded; ++token) {
                Acc const factor = tiles.decay.to_end(token);
                Vector<Acc> dot{};
                for (int i = token * columns_; i < (token + 1) * columns_; i += lanes<Acc>) {
                    auto const value = load(tiles.dv + i) * factor;
                    store(tiles.dv + i, value);
                    dot += value * load(tiles.v + i);
                }
                tiles.of_states[token] = vector_sum<Acc>(dot);
            }
        } else {
            std::fill(tiles.dv, tiles.dv + padded * columns_, Acc(0));
        }
        add_pairs(tiles, padded, head_dim_, columns_, is_first);
        store_tile(tiles.dv, columns_, tokens, head_dim_, gradient_.dv.row(batch, start, head),
                   gradient_.dv.seq_stride);
        if (has_before) {
            times_state(tiles, padded, head_dim_, rows_, columns_, tiles.dy, before);
            for (int token = 0; token < padded; ++token)
                tiles.of_rows[token] += add_and_dot(rows_, tiles.decay.from_start(token), tiles.product + token * rows_,
                                                    tiles.q + token * rows_, tiles.dq + token * rows_);
        }
        if (has_behind) {
            scale_rows(padded, columns_, tiles.v, [&](int token) { return tiles.decay.to_end(token); });
            transpose_tile(behind, rows_, columns_, tiles.state_transposed, Acc(1));
            tile_product<Into::sum, Acc>(padded, rows_, head_dim_, {tiles.v, columns_, 1},
                                         {tiles.state_transposed, rows_}, {tiles.dk, rows_});
        }
        if (gradient_.da.data != nullptr) {
            Vector<Acc> across{};
            if (has_before && has_behind)
                for (int i = 0; i < rows_ * columns_; i += lanes<Acc>) across += load(before + i) * load(behind + i);
            store_decay_gradient(tiles, tokens, vector_sum<Acc>(across) * tiles.decay.whole(),
                                 gradient_.da.row(batch, start, head), gradient_.da.seq_stride);
        }
        if (passes) pass_on(tiles, batch, head, chunk);
    }

    ScanProblem<T> problem_;
    ScanGradient<T> gradient_;
    BoundaryStates<Acc> boundary_;
    int state_, head_dim_, rows_, columns_;
};

/// Whether there are so few groups that threads would idle for more than it costs to keep the gradients of the states
/// at all boundaries, so that each chunk has a thread of its own.
template <class Exec>
bool scans_back_by_chunk(Exec const& exec, ScanSizes const& sizes) {
    i64 const items = sizes.batch * sizes.groups, threads = exec.concurrency();
    return 10 * items < 9 * ((items + threads - 1) / threads) * threads;
}

/// One thread for each group, which takes its chunks from the last to the first; or first the gradients of the states,
/// and then one thread for each chunk of each group.
template <class Exec, class T>
void scan_backward_host(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                        accumulator_t<T>* workspace, bool by_chunk) {
    using Acc = accumulator_t<T>;
    auto const sizes = problem.sizes;
    i64 const size = padded_state<Acc>(sizes), chunks = sizes.chunks();
    ScanStates<Acc> const states{workspace, chunks, size};
    ScanStates<Acc> const gradients{workspace + sizes.batch * sizes.heads * chunks * size, by_chunk ? chunks : 1, size};
    scan_forward_host(exec, problem, ScanResult<T>{gradient.initial, {}, nullptr, nullptr}, states);
    ScanBackward<T> const backward(problem, gradient, {states, gradients});
    std::size_t const scratch = backward.scratch_bytes();
    if (by_chunk) {
        for_each_heads("pentad::chunk_scan_backward_states", exec, sizes, scratch,
                       [=](ScanWork const& work, void* memory) { backward.states(work, memory); });
        for_each_item("pentad::chunk_scan_backward", exec, sizes.batch * sizes.groups * chunks, scratch,
                      [=](i64 item, void* memory) {
                          i64 const group = item / chunks;
                          backward.chunk(group / sizes.groups, group % sizes.groups, item % chunks, false, memory);
                      });
    } else {
        for_each_item("pentad::chunk_scan_backward", exec, sizes.batch * sizes.groups, scratch,
                      [=](i64 group, void* memory) {
                          for (i64 chunk = chunks; chunk-- > 0;)
                              backward.chunk(group / sizes.groups, group % sizes.groups, chunk, true, memory);
                      });
    }
}

/// Only the gradient of the initial state.
template <class Exec, class T>
void scan_initial_gradient_host(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                                accumulator_t<T>* workspace) {
    using Acc = accumulator_t<T>;
    ScanBackward<T> const backward(problem, gradient, {{}, {workspace, 1, padded_state<Acc>(problem.sizes)}});
    for_each_heads("pentad::chunk_scan_initial_gradient", exec, problem.sizes, backward.scratch_bytes(),
                   [=](ScanWork const& work, void* memory) { backward.states(work, memory); });
}

} // namespace pentad::kernels::detail
