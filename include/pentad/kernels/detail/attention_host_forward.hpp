// The forward pass of attention on the host: for one tile of queries, one pass over the tiles of keys
// with an online softmax. Queries lie along the vector's lanes (S^T = K Q^T, O^T = V^T P^T), so that maximum, sum and
// rescaling need no horizontal step and K and V are used as they come, without a transpose.
#pragma once

#include <pentad/kernels/detail/attention_host_scores.hpp>
#include <pentad/kernels/detail/attention_host_tiles.hpp>
#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/detail/simd.hpp>
#include <pentad/kernels/detail/tile_operand.hpp>
#include <pentad/kernels/detail/tile_product.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace pentad::kernels::detail {

/// One step of the online softmax, in units of log 2. `scores` [keys, tile_queries], times `factor`, become
/// 2^(score - max) with the maximum over all keys so far, as operands across, in their place; `rescale` is what earlier
/// results are to be multiplied with. Masked scores are not read; those of keys that no query of some vectors sees stay
/// as they are.
template <bool masked, class In, class Acc = sum_of<In>>
void softmax_step(VisiblePairs const& pairs, Acc* scores, Acc factor, Acc const* from, Acc const* until, Acc* max,
                  Acc* sum, Acc* rescale) {
    constexpr int width = lanes<Acc>, depth = depth_of<In>;
    constexpr int vectors = std::min(tile_queries / width, masked ? std::max(2, masked_columns / width) : 4);
    static_assert(!masked || vectors * width % masked_columns == 0, "products read what was converted");
    constexpr Acc infinity = std::numeric_limits<Acc>::infinity();
    for (int q = 0; q < tile_queries; q += vectors * width) {
        int const first_key = masked ? pairs.first_key(q) / depth * depth : 0;
        int const last_key = masked ? whole_operands<In>(pairs.last_key(q + vectors * width)) : pairs.keys();
        Vector<Acc> largest[vectors], first[vectors], limit[vectors], total[vectors];
        PENTAD_UNROLL(4)
        for (int v = 0; v < vectors; ++v) {
            largest[v] = broadcast(-infinity);
            if constexpr (masked) {
                first[v] = load(from + q + v * width);
                limit[v] = load(until + q + v * width);
            }
        }
        for (int key = first_key; key < last_key; ++key) {
            PENTAD_UNROLL(4)
            for (int v = 0; v < vectors; ++v) {
                Acc* const at = scores + key * tile_queries + q + v * width;
                Vector<Acc> score = load(at);
                if constexpr (masked) {
                    score = sees<Acc>(key, first[v], limit[v]) ? score : broadcast(-infinity);
                    store(at, score);
                }
                largest[v] = larger(score, largest[v]);
            }
        }
        PENTAD_UNROLL(4)
        for (int v = 0; v < vectors; ++v) {
            Vector<Acc> const before = load(max + q + v * width);
            largest[v] = larger<Vector<Acc>>(largest[v] * factor, before);
            store(max + q + v * width, largest[v]);
            // Nothing seen yet: any finite reference does, and avoids infinity - infinity.
            largest[v] = largest[v] == broadcast(-infinity) ? Vector<Acc>{} : largest[v];
            Vector<Acc> const keep = exp2<Acc>(before - largest[v]);
            store(rescale + q + v * width, keep);
            total[v] = load(sum + q + v * width) * keep;
        }
        for (int key = first_key; key < last_key; key += depth) {
            PENTAD_UNROLL(4)
            for (int v = 0; v < vectors; ++v) {
                Acc const* const at = scores + key * tile_queries + q + v * width;
                Vector<Acc> probability[depth];
                PENTAD_UNROLL(2)
                for (int i = 0; i < depth; ++i) {
                    probability[i] = exp2<Acc>(load(at + i * tile_queries) * factor - largest[v]);
                    total[v] += probability[i];
                }
                // No later than the scores that it replaces.
                Operand<In>::store_across(reinterpret_cast<In*>(scores) + key / depth * tile_queries + q + v * width,
                                          probability);
            }
        }
        PENTAD_UNROLL(4)
        for (int v = 0; v < vectors; ++v) store(sum + q + v * width, total[v]);
    }
}

/// Query i of one head: its unnormalised output `values`, maximum (log 2) and sum.
template <class T, class Acc = accumulator_t<T>>
void end_query(WriteResult<T> const& end, i64 batch, i64 head, i64 i, T* o, Acc const* values, i64 value_dim, Acc max,
               Acc sum) {
    auto const softmax = softmax_end(end, head, max * ln_2<Acc>, sum);
    for (i64 d = 0; d < value_dim; ++d) o[d] = T(values[d] * softmax.factor);
    end.lse.row(batch, head)[i] = softmax.lse;
}

template <class T, class Acc = accumulator_t<T>>
void end_query(MergeState<T> const& end, i64 batch, i64 head, i64 i, Acc* output, Acc const* values, i64 value_dim,
               Acc max, Acc sum) {
    if (sum == Acc(0)) return;
    Acc& largest = end.max.row(batch, head)[i];
    Acc& total = end.sum.row(batch, head)[i];
    Acc const here = max * ln_2<Acc>;
    Acc const together = std::max(largest, here);
    Acc const keep = std::exp(largest - together);
    Acc const add = std::exp(here - together);
    for (i64 d = 0; d < value_dim; ++d) output[d] = output[d] * keep + values[d] * add;
    largest = together;
    total = total * keep + sum * add;
}

template <class T>
Heads<T> const& destination(WriteResult<T> const& end) {
    return end.o;
}
template <class T>
Heads<accumulator_t<T>> const& destination(MergeState<T> const& end) {
    return end.output;
}

/// One tile of queries while the keys pass by.
template <class In, class Acc = sum_of<In>>
struct ForwardTile {
    In* q_transposed;  // across, [padded head_dim, tile_queries]
    Acc* o_transposed; // [padded value_dim, tile_queries]
    Acc *max, *sum;    // [tile_queries]
    i64 first;         // query
    int queries;
    TileVisibility visibility;
};

template <class In, class Acc = sum_of<In>>
struct ForwardScratch {
    ForwardScratch(void* memory, PaddedWidths const& padded, int at_once) {
        TileScratch pieces(memory);
        pieces.take(tile_keys * padded.larger() / depth_of<In>, k);
        pieces.take(tile_keys * padded.values / depth_of<In>, v);
        pieces.take(tile_keys * tile_queries, scores);
        pieces.take(tile_queries * padded.values, rows);
        pieces.take(tile_queries, rescale, from, until);
        for (int t = 0; t < at_once; ++t) {
            pieces.take(tile_queries * padded.heads / depth_of<In>, tiles[t].q_transposed);
            pieces.take(tile_queries * padded.values, tiles[t].o_transposed);
            pieces.take(tile_queries, tiles[t].max, tiles[t].sum);
        }
        bytes = pieces.bytes();
    }
    In* k;                       // along, [tile_keys, padded head_dim]; first queries, and values on their way to v
    In* v;                       // across, [tile_keys, padded value_dim]
    Acc* scores;                 // [tile_keys, tile_queries]
    Acc* rows;                   // [tile_queries, padded value_dim]
    Acc *rescale, *from, *until; // [tile_queries]
    ForwardTile<In> tiles[most_tiles_at_once];
    std::size_t bytes;
};

/// `count` tiles of queries, the first of which starts at `first`, of one batch entry and head.
template <class In, class T, class End>
void attention_forward_tiles(AttentionProblem<T> const& problem, End const& end, i64 batch, i64 head, i64 first,
                             int count, void* memory) {
    using Acc = accumulator_t<T>;
    constexpr int depth = depth_of<In>;
    auto const& [sizes, q_heads, k_heads, v_heads, scores_of, mask] = problem;
    HostScores<Acc> const head_scores(scores_of, head);
    Acc const factor = head_scores.change() ? Acc(1) : head_scores.factor();
    i64 const head_dim = sizes.head_dim, value_dim = sizes.value_dim;
    i64 const kv_head = head / sizes.heads_per_kv();
    auto const padded = padded_widths<In>(sizes);
    int const row = padded.heads / depth, v_columns = padded.values;

    ForwardScratch<In> scratch(memory, padded, count);
    auto& [k, v, scores, rows, rescale, from, until, tiles, bytes] = scratch;
    static_assert(tile_queries <= tile_keys);

    for (int t = 0; t < count; ++t) {
        auto& tile = tiles[t];
        tile.first = first + t * tile_queries;
        tile.queries = static_cast<int>(std::min<i64>(tile_queries, sizes.seq_q - tile.first));
        tile.visibility.set(mask, sizes.seq_k, batch, tile.first, tile.queries);
        load_tile(q_heads.row(batch, tile.first, head), q_heads.seq_stride, tile.queries, head_dim, k, tile_queries,
                  padded.heads);
        transpose_tile(k, tile_queries, row, tile.q_transposed);
        std::fill(tile.o_transposed, tile.o_transposed + tile_queries * v_columns, Acc(0));
        std::fill(tile.max, tile.max + tile_queries, -std::numeric_limits<Acc>::infinity());
        std::fill(tile.sum, tile.sum + tile_queries, Acc(0));
    }

    i64 const last_key = tiles[count - 1].visibility.keys().end;
    RowsAhead ahead;
    for (i64 key = start_of_tile(tiles[0].visibility.keys().begin); key < last_key; key += tile_keys) {
        int const loaded = static_cast<int>(std::min<i64>(tile_keys, last_key - key));
        int blocks = 0;
        for (int t = 0; t < count; ++t)
            blocks += row_blocks(tiles[t].visibility.template keys_of_tile<In>(key, loaded));
        if (blocks == 0) continue; // keys that only queries of other tiles see
        int const capacity = whole_operands<In>(loaded);
        load_across(v_heads.row(batch, key, kv_head), v_heads.seq_stride, loaded, value_dim, v, capacity, v_columns, k);
        load_tile(k_heads.row(batch, key, kv_head), k_heads.seq_stride, loaded, head_dim, k, capacity, padded.heads);
        ahead.start(blocks);
        if (int const next = static_cast<int>(std::min<i64>(tile_keys, last_key - key - tile_keys)); next > 0) {
            ahead.add(v_heads.row(batch, key + tile_keys, kv_head), v_heads.seq_stride, next, value_dim);
            ahead.add(k_heads.row(batch, key + tile_keys, kv_head), k_heads.seq_stride, next, head_dim);
        }
        for (int t = 0; t < count; ++t) {
            auto const& tile = tiles[t];
            int const keys = tile.visibility.template keys_of_tile<In>(key, loaded);
            if (keys == 0) continue;
            VisiblePairs const pairs(tile.visibility, key, keys);
            for_each_row_block(keys, [&](int begin, int end) {
                ahead.fetch();
                int const lane = pairs.first_lane<Acc>(begin), last_lane = pairs.last_lane<Acc>(end);
                if (lane < last_lane)
                    tile_product<Into::empty, In>(end - begin, last_lane - lane, operands<In>(head_dim),
                                                  {k + begin * row, row, 1}, {tile.q_transposed + lane, tile_queries},
                                                  {scores + begin * tile_queries + lane, tile_queries});
            });
            if (head_scores.change()) head_scores.apply(keys, scores, distance(mask, tile.first, key));
            if (pairs.all()) {
                softmax_step<false, In>(pairs, scores, factor, from, until, tile.max, tile.sum, rescale);
            } else {
                pairs.limits(from, until);
                softmax_step<true, In>(pairs, scores, factor, from, until, tile.max, tile.sum, rescale);
            }
            auto const* const probabilities = reinterpret_cast<In const*>(scores);
            int const columns = pairs.all() ? tile_queries : masked_columns;
            for (int q = 0; q < tile_queries; q += columns) {
                int const first_key = pairs.first_key(q) / depth, last = operands<In>(pairs.last_key(q + columns));
                if (first_key < last)
                    tile_product<Into::scaled, In>(v_columns, columns, last - first_key,
                                                   {v + first_key * v_columns, 1, v_columns},
                                                   {probabilities + first_key * tile_queries + q, tile_queries},
                                                   {tile.o_transposed + q, tile_queries}, rescale + q);
            }
        }
    }

    auto const& to = destination(end);
    for (int t = 0; t < count; ++t) {
        auto const& tile = tiles[t];
        transpose_tile(tile.o_transposed, v_columns, tile_queries, rows);
        for (int i = 0; i < tile.queries; ++i)
            end_query(end, batch, head, tile.first + i, to.row(batch, tile.first + i, head), rows + i * v_columns,
                      value_dim, tile.max[i], tile.sum[i]);
    }
}

/// @tparam In what products take: numbers of accumulator_t<T>, or what operand_t<T> says
template <class In, class Exec, class T, class End>
void attention_forward_host(Exec const& exec, AttentionProblem<T> const& problem, End const& end) {
    static_assert(std::is_same_v<sum_of<In>, accumulator_t<T>>);
    auto const& sizes = problem.sizes;
    auto const padded = padded_widths<In>(sizes);
    i64 const tiles = (sizes.seq_q + tile_queries - 1) / tile_queries;
    i64 const per_tile = tile_queries * (padded.heads * static_cast<i64>(sizeof(In) / depth_of<In>) +
                                         padded.values * static_cast<i64>(sizeof(sum_of<In>)));
    int const at_once = tiles_at_once(per_tile, tiles, sizes.batch * sizes.heads, exec.concurrency());
    i64 const turns = (tiles + at_once - 1) / at_once;
    auto const scratch = ForwardScratch<In>(nullptr, padded, at_once).bytes;
    // Heads of one group follow each other (they share K and V), and in each the queries that see most come first.
    for_each_item("pentad::attention_forward", exec, sizes.batch * sizes.heads * turns, scratch,
                  [=](i64 item, void* memory) {
                      i64 const head = item / turns % problem.sizes.heads;
                      i64 const batch = item / turns / problem.sizes.heads;
                      i64 const tile = (turns - 1 - item % turns) * at_once;
                      attention_forward_tiles<In>(problem, end, batch, head, tile * tile_queries,
                                                  static_cast<int>(std::min<i64>(at_once, tiles - tile)), memory);
                  });
}

} // namespace pentad::kernels::detail
