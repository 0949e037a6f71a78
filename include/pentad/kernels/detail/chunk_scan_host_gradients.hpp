// What the backward pass of the chunked scan on the host does with one chunk's tiles: the gradients that pass through
// the scores, those that pass through the states, and that of the decays.
#pragma once

#include <pentad/kernels/detail/chunk_scan_host_decay.hpp>
#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/host_tiles.hpp>
#include <pentad/kernels/detail/tile_product.hpp>

#include <algorithm>
#include <cstddef>

namespace pentad::kernels::detail {

template <class In, class Acc = sum_of<In>>
struct ScanBackwardScratch {
    ScanBackwardScratch(void* memory, ScanSizes const& sizes) : ScanBackwardScratch(TileScratch(memory), sizes) {}

    In *q, *k;                             // along, [tokens, state] of a group
    In *q_across, *k_across;               // where an operand is one number the same memory, as below
    In* k_transposed;                      // across, [state, tokens]
    Acc *dq, *dk;                          // [tokens, state] of a group
    Acc* product;                          // [tokens, state] of a head
    Acc *scores, *d_scores;                // [tokens, tokens] of a group
    In *d_scores_along, *d_scores_across;  // the same
    Acc* mixed;                            // [band_rows, tokens] of a head: dy v^T; in its place, across, the scores
                                           // with their decays
    In *v, *dy;                            // along, [tokens, head_dim] of a head
    In* dy_across;                         // the same
    In* v_transposed;                      // across, [head_dim, tokens]
    Acc* dv;                               // [tokens, head_dim]
    In *state, *state_transposed;          // across, [state, head_dim] and [head_dim, state]
    Acc* before_all;                       // [state, head_dim]: the gradient of the initial state
    Acc *of_rows, *of_columns, *of_states; // [tokens]: what the gradient of the decay is made of
    Acc* row_sums;                         // [tokens, lanes]
    ChunkDecay<Acc> decay;
    RowsAhead ahead;
    std::size_t bytes;

  private:
    ScanBackwardScratch(TileScratch pieces, ScanSizes const& sizes) : decay(pieces, padded_dim<In>(sizes.chunk)) {
        constexpr int depth = depth_of<In>;
        int const tokens = padded_dim<In>(sizes.chunk);
        int const rows = padded_dim<In>(sizes.state), columns = padded_dim<In>(sizes.head_dim);
        pieces.take(tokens * rows / depth, q, k, k_transposed);
        pieces.take(tokens * rows, dq, dk, product);
        pieces.take(tokens * tokens, scores, d_scores);
        pieces.take(band_rows * tokens, mixed);
        pieces.take(tokens * columns / depth, v, dy, v_transposed);
        pieces.take(tokens * columns, dv);
        pieces.take(rows * columns / depth, state_transposed);
        pieces.take(rows * columns, before_all);
        pieces.take(tokens, of_rows, of_columns, of_states);
        pieces.take(tokens * lanes<Acc>, row_sums);
        q_across = pieces.across(tokens * rows, q);
        k_across = pieces.across(tokens * rows, k);
        d_scores_along = pieces.across(tokens * tokens, reinterpret_cast<In*>(d_scores));
        d_scores_across = pieces.across(tokens * tokens, reinterpret_cast<In*>(d_scores));
        dy_across = pieces.across(tokens * columns, dy);
        state = pieces.across<In>(rows * columns, nullptr);
        bytes = pieces.bytes();
    }
};

/// Where `mixed`, across, has a row of the band.
template <class In>
In* mixed_across(ScanBackwardScratch<In> const& tiles, int row, int column, int padded) {
    return reinterpret_cast<In*>(tiles.mixed) + row / depth_of<In> * padded + column;
}

/// The decays of rows [begin, end): `mixed`, which holds dy v^T, becomes the scores with their decays; d_scores the
/// gradient of the scores, added up over the heads. of_columns and row_sums get the sums of the two's product below the
/// diagonal: what a token's cumulative decay contributes on it cancels.
template <bool is_first, class In>
void weigh_scores(ScanBackwardScratch<In> const& tiles, int begin, int end, int padded) {
    using Acc = sum_of<In>;
    constexpr int width = lanes<Acc>, depth = depth_of<In>;
    tiles.decay.for_each_block(begin, end, [&](auto on_diagonal, int row, int column, auto const& decay_of) {
        Vector<Acc> of_columns = load(tiles.of_columns + column);
        for (int r = 0; r < width; r += depth) {
            Vector<Acc> mixed[depth];
            PENTAD_UNROLL(2)
            for (int i = 0; i < depth; ++i) {
                int const at = (row + r + i) * padded + column;
                Vector<Acc> const weight = decay_of(r + i), score = load(tiles.scores + at),
                                  slope = load(tiles.mixed + at - begin * padded) * weight;
                mixed[i] = score * weight;
                if constexpr (is_first)
                    store(tiles.d_scores + at, slope);
                else
                    store(tiles.d_scores + at, load(tiles.d_scores + at) + slope);
                Vector<Acc> both = score * slope;
                if constexpr (on_diagonal) both = ChunkDecay<Acc>::up_to(r + i - 1) ? both : Vector<Acc>{};
                of_columns += both;
                Acc* const of_row = tiles.row_sums + (row + r + i) * width;
                store(of_row, column == 0 ? both : load(of_row) + both);
            }
            Operand<In>::store_across(mixed_across(tiles, row + r - begin, column, padded), mixed);
        }
        store(tiles.of_columns + column, of_columns);
    });
    for_each_unseen<Acc, depth>(begin, end, padded, [&](int row, int column) {
        Operand<In>::store_across(mixed_across(tiles, row - begin, column, padded), {});
    });
    for (int row = begin; row < end; ++row) {
        Acc sum = 0;
        for (int lane = 0; lane < width; ++lane) sum += tiles.row_sums[row * width + lane];
        tiles.of_rows[row] = sum;
    }
}

/// dv += (the scores with their decays)^T dy, and the gradient of the scores, both for the tokens of one head.
template <class In>
void add_pairs(ScanBackwardScratch<In>& tiles, int padded, int head_dim, int columns, bool is_first) {
    for (int begin = 0; begin < padded; begin += band_rows) {
        int const end = std::min(begin + band_rows, padded);
        visible_scores(begin, end, padded, head_dim, tiles.dy, columns, tiles.v_transposed, tiles.mixed);
        if (is_first)
            weigh_scores<true>(tiles, begin, end, padded);
        else
            weigh_scores<false>(tiles, begin, end, padded);
        for_each_row_block(end, [&](int first, int last) {
            int const from = std::max(first, begin);
            tiles.ahead.fetch();
            tile_product<Into::sum, In>(last - first, columns, operands<In>(end - from),
                                        {mixed_across(tiles, from - begin, first, padded), 1, padded},
                                        {tiles.dy_across + from / depth_of<In> * columns, columns},
                                        {tiles.dv + first * columns, columns});
        });
    }
}

/// product = x state^T, or that added to it, for x [tokens, head_dim], along, and a state [state, head_dim].
template <Into into, class In, class Acc = sum_of<In>>
void times_state(ScanBackwardScratch<In> const& tiles, ScanSizes const& sizes, int padded, In const* x,
                 Acc const* state, Acc* product) {
    int const rows = padded_dim<In>(sizes.state), columns = padded_dim<In>(sizes.head_dim);
    if constexpr (depth_of<In> > 1) {
        to_along(state, rows, columns, tiles.state);
        transpose_tile(tiles.state, rows, columns / depth_of<In>, tiles.state_transposed);
    } else {
        transpose_tile(state, rows, columns, tiles.state_transposed);
    }
    tile_product<into, In>(padded, rows, operands<In>(sizes.head_dim), {x, columns / depth_of<In>, 1},
                           {tiles.state_transposed, rows}, {product, rows});
}

template <class Acc>
Acc vector_sum(Vector<Acc> const& vector) {
    Acc sum = 0;
    for (int lane = 0; lane < lanes<Acc>; ++lane) sum += vector[lane];
    return sum;
}

/// @param y along
template <class In, class Acc = sum_of<In>>
Acc dot(int extent, Acc const* x, In const* y) {
    Vector<Acc> total{};
    for (int i = 0; i < extent; i += lanes<Acc>) total += load(x + i) * Operand<In>::load_along(y + i / depth_of<In>);
    return vector_sum<Acc>(total);
}

/// sum += factor x, and the sum over `extent` of y times what is added. @param y along
template <class In, class Acc = sum_of<In>>
Acc add_and_dot(int extent, Acc factor, Acc const* x, In const* y, Acc* sum) {
    Vector<Acc> total{};
    for (int i = 0; i < extent; i += lanes<Acc>) {
        auto const added = load(x + i) * factor;
        store(sum + i, load(sum + i) + added);
        total += added * Operand<In>::load_along(y + i / depth_of<In>);
    }
    return vector_sum<Acc>(total);
}

/// The gradient of the log decays of a chunk's tokens. That of the cumulative decay up to token t is <y_t, dy_t> -
/// <v_t, dv_t>, and a token's own decay is in all cumulative ones from it on. Here the pairs that a token's decay lies
/// between are summed: `across` from states before the chunk to what comes behind it; of_states from keys before the
/// token to behind the chunk; of_rows and of_columns within it, and from before the chunk to queries. None lie on both
/// sides of a document's start, where the sum from the chunk's end begins anew.
template <class In, class Acc = sum_of<In>>
void store_decay_gradient(ScanBackwardScratch<In> const& tiles, ChunkDocuments const& documents, Acc across, Acc* to,
                          i64 stride) {
    Acc before = across, after = 0;
    for (int token = 0; token < documents.tokens; before += tiles.of_states[token++]) to[token * stride] = before;
    for (int token = documents.tokens - 1; token >= 0; --token) {
        to[token * stride] += after += tiles.of_rows[token] - tiles.of_columns[token];
        if (documents.is_first(token)) to[token * stride] = after = 0;
    }
}

} // namespace pentad::kernels::detail
