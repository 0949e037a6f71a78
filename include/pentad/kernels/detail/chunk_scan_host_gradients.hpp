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
    RowsAhead ahead;
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
void add_pairs(ScanBackwardScratch<Acc>& tiles, int padded, int head_dim, int columns, bool is_first) {
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
            tiles.ahead.fetch();
            tile_product<Into::sum, Acc>(last - first, columns, end - from,
                                         {tiles.mixed + (from - begin) * padded + first, 1, padded},
                                         {tiles.dy + from * columns, columns}, {tiles.dv + first * columns, columns});
        });
    }
}

/// product = x state^T, or that added to it, for x [tokens, head_dim] and a state [state, head_dim].
template <Into into, class Acc>
void times_state(ScanBackwardScratch<Acc> const& tiles, ScanSizes const& sizes, int padded, Acc const* x,
                 Acc const* state, Acc* product) {
    int const rows = padded_dim<Acc>(sizes.state), columns = padded_dim<Acc>(sizes.head_dim);
    transpose_tile(state, rows, columns, tiles.state_transposed, Acc(1));
    tile_product<into, Acc>(padded, rows, static_cast<int>(sizes.head_dim), {x, columns, 1},
                            {tiles.state_transposed, rows}, {product, rows});
}

template <class Acc>
Acc vector_sum(Vector<Acc> const& vector) {
    Acc sum = 0;
    for (int lane = 0; lane < lanes<Acc>; ++lane) sum += vector[lane];
    return sum;
}

template <class Acc>
Acc dot(int extent, Acc const* x, Acc const* y) {
    Vector<Acc> total{};
    for (int i = 0; i < extent; i += lanes<Acc>) total += load(x + i) * load(y + i);
    return vector_sum<Acc>(total);
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
/// token to behind the chunk; of_rows and of_columns within it, and from before the chunk to queries. None lie on both
/// sides of a document's start, where the sum from the chunk's end begins anew.
template <class Acc>
void store_decay_gradient(ScanBackwardScratch<Acc> const& tiles, ChunkDocuments const& documents, Acc across, Acc* to,
                          i64 stride) {
    Acc before = across, after = 0;
    for (int token = 0; token < documents.tokens; before += tiles.of_states[token++]) to[token * stride] = before;
    for (int token = documents.tokens - 1; token >= 0; --token) {
        to[token * stride] += after += tiles.of_rows[token] - tiles.of_columns[token];
        if (documents.is_first(token)) to[token * stride] = after = 0;
    }
}

} // namespace pentad::kernels::detail
