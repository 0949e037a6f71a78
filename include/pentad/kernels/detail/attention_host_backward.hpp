// The backward pass of attention on the host. For a tile of queries and a tile of keys it recomputes
// the probabilities and adds five products. One thread owns whatever it adds to: no atomics, the same bits each run.
#pragma once

#include <pentad/kernels/detail/attention_host_scores.hpp>
#include <pentad/kernels/detail/attention_host_tiles.hpp>
#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/detail/simd.hpp>
#include <pentad/kernels/detail/tile_operand.hpp>
#include <pentad/kernels/detail/tile_product.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <limits>
#include <type_traits>

namespace pentad::kernels::detail {

/// The part of the backward pass that one thread does: heads and queries [begin, end), keys [begin, end), all of one kv
/// head, and which gradients it adds to.
struct BackwardWork {
    i64 batch, kv_head;
    i64 first_head, last_head;
    i64 first_query, last_query;
    i64 first_key, last_key;
    bool adds_dq, adds_dk_dv;
};

/// What a tile of queries and a tile of keys make: scores and d_probabilities, [tile_keys, tile_queries], and in their
/// place operands of the same shape.
template <class In, class Acc = sum_of<In>>
struct BackwardPairs {
    static constexpr int stride = tile_queries; // of the rows of all; those of operands along may end before

    Acc *scores, *d_probabilities;
    In* d_scores_across; // [tile_keys, tile_queries]; where an operand is one number, d_scores_along()

    In* probabilities_along() const { return reinterpret_cast<In*>(scores); }
    In* d_scores_along() const { return reinterpret_cast<In*>(d_probabilities); }
};

/// Probabilities P = 2^(S - lse) and gradients dS = P (dP - delta) scale, from scores S and dP. Where masked both
/// become 0, whatever they were.
/// @param first_distance from the first key to the first query
template <bool masked, bool changed, class In, class Acc = sum_of<In>>
void softmax_backward(int keys, BackwardPairs<In> const& pairs, Acc const* from, Acc const* until, Acc const* lse,
                      Acc const* delta, Acc scale, HostScores<Acc> const& head_scores, i64 first_distance) {
    constexpr int width = lanes<Acc>, depth = depth_of<In>, stride = BackwardPairs<In>::stride;
    for (int key = 0; key < keys; key += depth) {
        PENTAD_UNROLL(4)
        for (int q = 0; q < tile_queries; q += width) {
            Vector<Acc> probability[depth], d_score[depth]; // of each key
            PENTAD_UNROLL(2)
            for (int k = 0; k < depth; ++k) {
                int const at = (key + k) * stride + q;
                Vector<Acc> const product = load(pairs.scores + at);
                ScoreAt<Vector<Acc>> score{product * head_scores.factor(), {}};
                if constexpr (changed) score = head_scores.at(product, first_distance + q - key - k);
                // Rounding lifts a huge score above its lse; a probability is at most 1.
                probability[k] = exp2<Acc>(smaller<Vector<Acc>>(Vector<Acc>{}, score.value - load(lse + q)));
                d_score[k] = probability[k] * ((load(pairs.d_probabilities + at) - load(delta + q)) * scale);
                if constexpr (changed) d_score[k] *= score.slope;
                if constexpr (masked) {
                    auto const visible = sees<Acc>(key + k, load(from + q), load(until + q));
                    probability[k] = visible ? probability[k] : Vector<Acc>{};
                    d_score[k] = visible ? d_score[k] : Vector<Acc>{};
                }
            }
            int const at = key * stride + q / depth; // no further in a row than the numbers read
            Operand<In>::store_along(pairs.probabilities_along() + at, stride, probability);
            Operand<In>::store_along(pairs.d_scores_along() + at, stride, d_score);
            if constexpr (depth > 1)
                Operand<In>::store_across(pairs.d_scores_across + key / depth * stride + q, d_score);
        }
    }
}

/// One tile of queries while the keys pass by.
template <class In, class Acc = sum_of<In>>
struct BackwardTile {
    In *q, *d_o;                       // across, [tile_queries, padded head_dim], [tile_queries, padded value_dim]
    In *q_transposed, *d_o_transposed; // across, [padded head_dim, tile_queries], [padded value_dim, tile_queries]
    Acc* dq;                           // [tile_queries, padded head_dim]
    Acc *lse, *delta;                  // [tile_queries]
    i64 first;                         // query
    int queries;
    TileVisibility visibility;

    static i64 bytes(PaddedWidths const& padded) {
        constexpr i64 operands = 2 * sizeof(In) / depth_of<In>;
        return tile_queries *
               (operands * (padded.heads + padded.values) + static_cast<i64>(sizeof(Acc)) * padded.heads);
    }
};

template <class In, class Acc = sum_of<In>>
struct BackwardScratch {
    BackwardScratch(void* memory, PaddedWidths const& padded, int at_once) {
        constexpr int depth = depth_of<In>;
        TileScratch pieces(memory);
        pieces.take(tile_keys * padded.heads / depth, k);
        pieces.take(tile_keys * padded.values / depth, v);
        pieces.take(tile_keys * padded.heads, dk);
        pieces.take(tile_keys * padded.values, dv);
        pieces.take(tile_keys * tile_queries, pairs.scores, pairs.d_probabilities);
        pieces.take(tile_queries, from, until);
        k_across = pieces.across(tile_keys * padded.heads, k);
        along = pieces.across<In>(tile_queries * padded.larger(), nullptr);
        pairs.d_scores_across = pieces.across(tile_keys * tile_queries, pairs.d_scores_along());
        for (int t = 0; t < at_once; ++t) {
            auto& tile = tiles[t];
            pieces.take(tile_queries * padded.heads / depth, tile.q, tile.q_transposed);
            pieces.take(tile_queries * padded.values / depth, tile.d_o, tile.d_o_transposed);
            pieces.take(tile_queries * padded.heads, tile.dq);
            pieces.take(tile_queries, tile.lse, tile.delta);
        }
        bytes = pieces.bytes();
    }
    In *k, *v;         // along, [tile_keys, padded head_dim], [tile_keys, padded value_dim]
    In* k_across;      // [tile_keys, padded head_dim]
    In* along;         // [tile_queries, padded]: rows before their depth is turned, where that makes a difference
    Acc *dk, *dv;      // [tile_keys, padded head_dim], [tile_keys, padded value_dim]
    Acc *from, *until; // [tile_queries]
    BackwardPairs<In> pairs;
    BackwardTile<In> tiles[most_tiles_at_once];
    std::size_t bytes;
};

/// Tiles of queries that a thread takes at once in the backward pass.
template <class In>
int backward_tiles_at_once(PaddedWidths const& padded, i64 tiles, i64 others, i64 threads) {
    return tiles_at_once(BackwardTile<In>::bytes(padded), tiles, others, threads);
}

template <class In, class T>
void attention_backward_work(AttentionProblem<T> const& problem, AttentionGradient<T> const& gradient,
                             BackwardWork const& work, int at_once, void* memory) {
    using Acc = accumulator_t<T>;
    constexpr Acc infinity = std::numeric_limits<Acc>::infinity();
    constexpr int depth = depth_of<In>, stride = tile_queries;
    auto const& [sizes, q_heads, k_heads, v_heads, scores_of, mask] = problem;
    auto const scale = static_cast<Acc>(scores_of.scale);
    int const head_dim = static_cast<int>(sizes.head_dim), value_dim = static_cast<int>(sizes.value_dim);
    auto const padded = padded_widths<In>(sizes);
    int const q_columns = padded.heads, v_columns = padded.values;

    BackwardScratch<In> scratch(memory, padded, at_once);
    auto& [k, v, k_across, along, dk, dv, from, until, of_pairs, tiles, bytes] = scratch;

    auto const place_queries = [&](BackwardTile<In>& tile, i64 first) {
        tile.first = first;
        tile.queries = static_cast<int>(std::min<i64>(tile_queries, work.last_query - first));
        tile.visibility.set(mask, sizes.seq_k, work.batch, first, tile.queries);
    };
    auto const load_rows = [&](BackwardTile<In> const& tile, Heads<T const> const& heads, i64 head, i64 width,
                               int columns, In* across, In* transposed) {
        In* const rows = load_across(heads.row(work.batch, tile.first, head), heads.seq_stride, tile.queries, width,
                                     across, tile_queries, columns, along);
        transpose_tile(rows, tile_queries, columns / depth, transposed);
    };
    auto const load_queries = [&](BackwardTile<In>& tile, i64 head) {
        load_rows(tile, q_heads, head, head_dim, q_columns, tile.q, tile.q_transposed);
        load_rows(tile, gradient.d_o, head, value_dim, v_columns, tile.d_o, tile.d_o_transposed);
        std::fill(tile.dq, tile.dq + tile_queries * q_columns, Acc(0));
        Acc const* const lse_of = gradient.lse.row(work.batch, head) + tile.first;
        Acc const* const delta_of = gradient.delta.row(work.batch, head) + tile.first;
        for (int i = 0; i < tile_queries; ++i) {
            // Queries that saw nothing, and lanes without a query, get probability 0 by an infinite lse.
            Acc const lse = i < tile.queries ? lse_of[i] : -infinity;
            tile.lse[i] = lse == -infinity ? infinity : lse * log2_e<Acc>;
            tile.delta[i] = i < tile.queries ? delta_of[i] : Acc(0);
        }
    };

    auto const add_pair = [&](BackwardTile<In> const& tile, i64 key, int keys, HostScores<Acc> const& head_scores) {
        VisiblePairs const pairs(tile.visibility, key, keys);
        for_each_row_block(keys, [&](int begin, int end) {
            int const lane = pairs.first_lane<Acc>(begin), columns = pairs.last_lane<Acc>(end) - lane;
            if (columns <= 0) return;
            int const at = begin * stride + lane, k_row = q_columns / depth, v_row = v_columns / depth;
            tile_product<Into::empty, In>(end - begin, columns, operands<In>(head_dim), {k + begin * k_row, k_row, 1},
                                          {tile.q_transposed + lane, tile_queries}, {of_pairs.scores + at, stride});
            tile_product<Into::empty, In>(end - begin, columns, operands<In>(value_dim), {v + begin * v_row, v_row, 1},
                                          {tile.d_o_transposed + lane, tile_queries},
                                          {of_pairs.d_probabilities + at, stride});
        });
        auto const softmax = [&]<bool masked>(std::bool_constant<masked>) {
            i64 const apart = distance(mask, tile.first, key);
            if (head_scores.change())
                softmax_backward<masked, true, In>(keys, of_pairs, from, until, tile.lse, tile.delta, scale,
                                                   head_scores, apart);
            else
                softmax_backward<masked, false, In>(keys, of_pairs, from, until, tile.lse, tile.delta, scale,
                                                    head_scores, apart);
        };
        if (pairs.all()) {
            softmax(std::false_type());
        } else {
            pairs.limits(from, until);
            softmax(std::true_type());
        }
        if (work.adds_dk_dv)
            for_each_row_block(keys, [&](int begin, int end) {
                int const query = pairs.first_query(begin) / depth;
                int const queries = operands<In>(std::min(pairs.last_query(end), tile.queries)) - query;
                if (queries <= 0) return;
                int const at = begin * stride + query;
                tile_product<Into::sum, In>(
                    end - begin, v_columns, queries, {of_pairs.probabilities_along() + at, stride, 1},
                    {tile.d_o + query * v_columns, v_columns}, {dv + begin * v_columns, v_columns});
                tile_product<Into::sum, In>(
                    end - begin, q_columns, queries, {of_pairs.d_scores_along() + at, stride, 1},
                    {tile.q + query * q_columns, q_columns}, {dk + begin * q_columns, q_columns});
            });
        if (work.adds_dq)
            for_each_row_block(tile.queries, [&](int begin, int end) {
                int const first_key = pairs.first_key(begin) / depth;
                int const seen = operands<In>(pairs.last_key(end)) - first_key;
                if (seen <= 0) return;
                tile_product<Into::sum, In>(
                    end - begin, q_columns, seen, {of_pairs.d_scores_across + first_key * stride + begin, 1, stride},
                    {k_across + first_key * q_columns, q_columns}, {tile.dq + begin * q_columns, q_columns});
            });
    };

    for (i64 head = work.first_head; head < work.last_head; ++head) {
        HostScores<Acc> const head_scores(scores_of, head);
        for (i64 query = work.first_query; query < work.last_query; query += at_once * tile_queries) {
            i64 const tiles_left = (work.last_query - query + tile_queries - 1) / tile_queries;
            int const count = static_cast<int>(std::min<i64>(at_once, tiles_left));
            for (int t = 0; t < count; ++t) place_queries(tiles[t], query + t * tile_queries);
            i64 const seen = start_of_tile(tiles[0].visibility.keys().begin);
            i64 const first_key = std::max(work.first_key, seen);
            i64 const last_key = std::min(work.last_key, tiles[count - 1].visibility.keys().end);
            if (first_key >= last_key) continue;
            for (int t = 0; t < count; ++t) load_queries(tiles[t], head);

            for (i64 key = first_key; key < last_key; key += tile_keys) {
                int const loaded = static_cast<int>(std::min<i64>(tile_keys, last_key - key));
                int const rows = whole_operands<In>(loaded);
                load_tile(k_heads.row(work.batch, key, work.kv_head), k_heads.seq_stride, loaded, head_dim, k, rows,
                          q_columns);
                load_tile(v_heads.row(work.batch, key, work.kv_head), v_heads.seq_stride, loaded, value_dim, v, rows,
                          v_columns);
                turn_depth(k, rows, q_columns, k_across);
                std::fill(dk, dk + rows * q_columns, Acc(0));
                std::fill(dv, dv + rows * v_columns, Acc(0));
                for (int t = 0; t < count; ++t) {
                    int const keys = tiles[t].visibility.template keys_of_tile<In>(key, loaded);
                    if (keys > 0) add_pair(tiles[t], key, keys, head_scores);
                }
                if (!work.adds_dk_dv) continue;
                add_tile(dk, q_columns, loaded, head_dim, gradient.dk.row(work.batch, key, work.kv_head),
                         gradient.dk.seq_stride);
                add_tile(dv, v_columns, loaded, value_dim, gradient.dv.row(work.batch, key, work.kv_head),
                         gradient.dv.seq_stride);
            }

            if (!work.adds_dq) continue;
            for (int t = 0; t < count; ++t)
                add_tile(tiles[t].dq, q_columns, tiles[t].queries, head_dim,
                         gradient.dq.row(work.batch, tiles[t].first, head), gradient.dq.seq_stride);
        }
    }
}

/// One thread for each kv head, which does everything in five products for each pair of tiles.
template <class In, class Exec, class T>
void attention_backward_by_head(Exec const& exec, AttentionProblem<T> const& problem,
                                AttentionGradient<T> const& gradient) {
    auto const sizes = problem.sizes;
    auto const padded = padded_widths<In>(sizes);
    i64 const tiles = (sizes.seq_q + tile_queries - 1) / tile_queries;
    int const at_once = backward_tiles_at_once<In>(padded, tiles, 1, 1);
    for_each_item("pentad::attention_backward", exec, sizes.batch * sizes.kv_heads,
                  BackwardScratch<In>(nullptr, padded, at_once).bytes, [=](i64 item, void* memory) {
                      i64 const kv_head = item % sizes.kv_heads;
                      i64 const head = kv_head * sizes.heads_per_kv();
                      BackwardWork const work{
                          item / sizes.kv_heads, kv_head, head, head + sizes.heads_per_kv(), 0, sizes.seq_q, 0,
                          sizes.seq_k,           true,    true};
                      attention_backward_work<In>(problem, gradient, work, at_once, memory);
                  });
}

/// One thread for each tile of keys and then one for each tile of queries: seven products, but many owners.
template <class In, class Exec, class T>
void attention_backward_by_tile(Exec const& exec, AttentionProblem<T> const& problem,
                                AttentionGradient<T> const& gradient) {
    auto const sizes = problem.sizes;
    auto const padded = padded_widths<In>(sizes);
    i64 const key_tiles = (sizes.seq_k + tile_keys - 1) / tile_keys;
    for_each_item(
        "pentad::attention_backward_dk_dv", exec, sizes.batch * sizes.kv_heads * key_tiles,
        BackwardScratch<In>(nullptr, padded, 1).bytes, [=](i64 item, void* memory) {
            i64 const kv_head = item / key_tiles % sizes.kv_heads;
            i64 const head = kv_head * sizes.heads_per_kv();
            i64 const key = item % key_tiles * tile_keys;
            BackwardWork const work{
                item / key_tiles / sizes.kv_heads,      kv_head, head, head + sizes.heads_per_kv(), 0, sizes.seq_q, key,
                std::min(key + tile_keys, sizes.seq_k), false,   true};
            attention_backward_work<In>(problem, gradient, work, 1, memory);
        });
    i64 const query_tiles = (sizes.seq_q + tile_queries - 1) / tile_queries;
    int const at_once = backward_tiles_at_once<In>(padded, query_tiles, sizes.batch * sizes.heads, exec.concurrency());
    i64 const turns = (query_tiles + at_once - 1) / at_once;
    for_each_item("pentad::attention_backward_dq", exec, sizes.batch * sizes.heads * turns,
                  BackwardScratch<In>(nullptr, padded, at_once).bytes, [=](i64 item, void* memory) {
                      i64 const head = item / turns % sizes.heads;
                      i64 const query = (turns - 1 - item % turns) * at_once * tile_queries;
                      BackwardWork const work{item / turns / sizes.heads,
                                              head / sizes.heads_per_kv(),
                                              head,
                                              head + 1,
                                              query,
                                              std::min(query + at_once * tile_queries, sizes.seq_q),
                                              0,
                                              sizes.seq_k,
                                              true,
                                              false};
                      attention_backward_work<In>(problem, gradient, work, at_once, memory);
                  });
}

/// @tparam In as in the forward pass
template <class In, class Exec, class T>
void attention_backward_host(Exec const& exec, AttentionProblem<T> const& problem,
                             AttentionGradient<T> const& gradient) {
    // By tile if there are so few kv heads that threads would idle for more than the two additional products cost.
    i64 const heads = problem.sizes.batch * problem.sizes.kv_heads;
    i64 const threads = exec.concurrency();
    i64 const turns = (heads + threads - 1) / threads;
    if (7 * heads >= 5 * turns * threads)
        attention_backward_by_head<In>(exec, problem, gradient);
    else
        attention_backward_by_tile<In>(exec, problem, gradient);
}

} // namespace pentad::kernels::detail
