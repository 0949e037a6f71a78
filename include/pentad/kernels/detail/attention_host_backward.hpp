// The backward pass of attention on the host. For a tile of queries and a tile of keys it recomputes
// the probabilities and adds five products. One thread owns whatever it adds to: no atomics, the same bits each run.
#pragma once

#include <pentad/kernels/detail/attention_host_scores.hpp>
#include <pentad/kernels/detail/attention_host_tiles.hpp>
#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/detail/simd.hpp>
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

/// scores becomes P = 2^(score - lse), d_scores (which holds dP) becomes dS = P (dP - delta) scale. Where masked both
/// become 0, whatever they were. Where `changed`, the scores given are products, and dS is by them.
/// @param first_distance from the first key to the first query
template <bool masked, bool changed, class Acc>
void softmax_backward(int keys, Acc* scores, Acc* d_scores, Acc const* from, Acc const* until, Acc const* lse,
                      Acc const* delta, Acc scale, HostScores<Acc> const& head_scores, i64 first_distance) {
    constexpr int width = lanes<Acc>;
    for (int key = 0; key < keys; ++key) {
        PENTAD_UNROLL(4)
        for (int q = 0; q < tile_queries; q += width) {
            Acc* const score = scores + key * tile_queries + q;
            Acc* const d_score = d_scores + key * tile_queries + q;
            ScoreAt<Vector<Acc>> at{load(score), {}};
            if constexpr (changed) at = head_scores.at(at.value, first_distance + q - key);
            // Rounding lifts a huge score above its lse; a probability is at most 1.
            Vector<Acc> probability = exp2<Acc>(smaller<Vector<Acc>>(Vector<Acc>{}, at.value - load(lse + q)));
            Vector<Acc> derivative = probability * ((load(d_score) - load(delta + q)) * scale);
            if constexpr (changed) derivative *= at.slope;
            if constexpr (masked) {
                auto const visible = sees<Acc>(key, load(from + q), load(until + q));
                probability = visible ? probability : Vector<Acc>{};
                derivative = visible ? derivative : Vector<Acc>{};
            }
            store(score, probability);
            store(d_score, derivative);
        }
    }
}

/// One tile of queries while the keys pass by.
template <class Acc>
struct BackwardTile {
    Acc *q, *d_o, *dq;                  // [tile_queries, padded]
    Acc *q_transposed, *d_o_transposed; // [padded, tile_queries]
    Acc *lse, *delta;                   // [tile_queries]
    i64 first;                          // query
    int queries;
    TileVisibility visibility;
};

template <class Acc>
struct BackwardScratch {
    BackwardScratch(void* memory, int padded, int at_once) {
        TileScratch<Acc> pieces(memory);
        for (Acc** piece : {&k, &v, &dk, &dv}) *piece = pieces.tile(tile_keys * padded);
        for (Acc** piece : {&scores, &d_scores}) *piece = pieces.tile(tile_keys * tile_queries);
        for (Acc** piece : {&from, &until}) *piece = pieces.tile(tile_queries);
        for (int t = 0; t < at_once; ++t) {
            auto& tile = tiles[t];
            for (Acc** piece : {&tile.q, &tile.d_o, &tile.dq, &tile.q_transposed, &tile.d_o_transposed})
                *piece = pieces.tile(tile_queries * padded);
            for (Acc** piece : {&tile.lse, &tile.delta}) *piece = pieces.tile(tile_queries);
        }
        bytes = pieces.bytes();
    }
    Acc *k, *v, *dk, *dv;   // [tile_keys, padded]
    Acc *scores, *d_scores; // [tile_keys, tile_queries]
    Acc *from, *until;      // [tile_queries]
    BackwardTile<Acc> tiles[most_tiles_at_once];
    std::size_t bytes;
};

/// Tiles of queries that a thread takes at once in the backward pass.
template <class Acc>
int backward_tiles_at_once(int padded, i64 tiles, i64 others, i64 threads) {
    return tiles_at_once<Acc>(5 * tile_queries * padded, tiles, others, threads);
}

template <class T>
void attention_backward_work(AttentionProblem<T> const& problem, AttentionGradient<T> const& gradient,
                             BackwardWork const& work, int at_once, void* memory) {
    using Acc = accumulator_t<T>;
    constexpr Acc infinity = std::numeric_limits<Acc>::infinity();
    auto const& [sizes, q_heads, k_heads, v_heads, scores_of, mask] = problem;
    auto const scale = static_cast<Acc>(scores_of.scale);
    int const head_dim = static_cast<int>(sizes.head_dim);
    int const padded = padded_dim<Acc>(head_dim);

    BackwardScratch<Acc> scratch(memory, padded, at_once);
    auto& [k, v, dk, dv, scores, d_scores, from, until, tiles, bytes] = scratch;

    auto const place_queries = [&](BackwardTile<Acc>& tile, i64 first) {
        tile.first = first;
        tile.queries = static_cast<int>(std::min<i64>(tile_queries, work.last_query - first));
        tile.visibility.set(mask, sizes.seq_k, work.batch, first, tile.queries);
    };
    auto const load_queries = [&](BackwardTile<Acc>& tile, i64 head) {
        i64 const first = tile.first;
        auto const& d_o = gradient.d_o;
        load_tile(q_heads.row(work.batch, first, head), q_heads.seq_stride, tile.queries, head_dim, tile.q,
                  tile_queries, padded);
        load_tile(d_o.row(work.batch, first, head), d_o.seq_stride, tile.queries, head_dim, tile.d_o, tile_queries,
                  padded);
        transpose_tile(tile.q, tile_queries, padded, tile.q_transposed, scale * log2_e<Acc>);
        transpose_tile(tile.d_o, tile_queries, padded, tile.d_o_transposed, Acc(1));
        std::fill(tile.dq, tile.dq + tile_queries * padded, Acc(0));
        Acc const* const lse_of = gradient.lse.row(work.batch, head) + first;
        Acc const* const delta_of = gradient.delta.row(work.batch, head) + first;
        for (int i = 0; i < tile_queries; ++i) {
            // Queries that saw nothing, and lanes without a query, get probability 0 by an infinite lse.
            Acc const lse = i < tile.queries ? lse_of[i] : -infinity;
            tile.lse[i] = lse == -infinity ? infinity : lse * log2_e<Acc>;
            tile.delta[i] = i < tile.queries ? delta_of[i] : Acc(0);
        }
    };

    auto const add_pair = [&](BackwardTile<Acc> const& tile, i64 key, int keys, HostScores<Acc> const& head_scores) {
        VisiblePairs const pairs(tile.visibility, key, keys);
        for_each_row_block(keys, [&](int begin, int end) {
            int const lane = pairs.first_lane<Acc>(begin), columns = pairs.last_lane<Acc>(end) - lane;
            if (columns <= 0) return;
            int const at = begin * tile_queries + lane;
            tile_product<Into::empty, Acc>(end - begin, columns, head_dim, {k + begin * padded, padded, 1},
                                           {tile.q_transposed + lane, tile_queries}, {scores + at, tile_queries});
            tile_product<Into::empty, Acc>(end - begin, columns, head_dim, {v + begin * padded, padded, 1},
                                           {tile.d_o_transposed + lane, tile_queries}, {d_scores + at, tile_queries});
        });
        auto const softmax = [&]<bool masked>(std::bool_constant<masked>) {
            i64 const apart = distance(mask, tile.first, key);
            if (head_scores.change())
                softmax_backward<masked, true>(keys, scores, d_scores, from, until, tile.lse, tile.delta, scale,
                                               head_scores, apart);
            else
                softmax_backward<masked, false>(keys, scores, d_scores, from, until, tile.lse, tile.delta, scale,
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
                int const query = pairs.first_query(begin);
                int const queries = std::min(pairs.last_query(end), tile.queries) - query;
                if (queries <= 0) return;
                int const at = begin * tile_queries + query;
                tile_product<Into::sum, Acc>(end - begin, padded, queries, {scores + at, tile_queries, 1},
                                             {tile.d_o + query * padded, padded}, {dv + begin * padded, padded});
                tile_product<Into::sum, Acc>(end - begin, padded, queries, {d_scores + at, tile_queries, 1},
                                             {tile.q + query * padded, padded}, {dk + begin * padded, padded});
            });
        if (work.adds_dq)
            for_each_row_block(tile.queries, [&](int begin, int end) {
                int const first_key = pairs.first_key(begin), seen = pairs.last_key(end) - first_key;
                if (seen <= 0) return;
                tile_product<Into::sum, Acc>(end - begin, padded, seen,
                                             {d_scores + first_key * tile_queries + begin, 1, tile_queries},
                                             {k + first_key * padded, padded}, {tile.dq + begin * padded, padded});
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
                load_tile(k_heads.row(work.batch, key, work.kv_head), k_heads.seq_stride, loaded, head_dim, k, loaded,
                          padded);
                load_tile(v_heads.row(work.batch, key, work.kv_head), v_heads.seq_stride, loaded, head_dim, v, loaded,
                          padded);
                std::fill(dk, dk + loaded * padded, Acc(0));
                std::fill(dv, dv + loaded * padded, Acc(0));
                for (int t = 0; t < count; ++t) {
                    auto const seen_by_tile = tiles[t].visibility.keys();
                    int const keys = static_cast<int>(std::min<i64>(loaded, seen_by_tile.end - key));
                    if (keys > 0 && seen_by_tile.begin < key + keys) add_pair(tiles[t], key, keys, head_scores);
                }
                if (!work.adds_dk_dv) continue;
                add_tile(dk, padded, loaded, head_dim, gradient.dk.row(work.batch, key, work.kv_head),
                         gradient.dk.seq_stride);
                add_tile(dv, padded, loaded, head_dim, gradient.dv.row(work.batch, key, work.kv_head),
                         gradient.dv.seq_stride);
            }

            if (!work.adds_dq) continue;
            for (int t = 0; t < count; ++t)
                add_tile(tiles[t].dq, padded, tiles[t].queries, head_dim,
                         gradient.dq.row(work.batch, tiles[t].first, head), gradient.dq.seq_stride);
        }
    }
}

/// One thread for each kv head, which does everything in five products for each pair of tiles.
template <class Exec, class T>
void attention_backward_by_head(Exec const& exec, AttentionProblem<T> const& problem,
                                AttentionGradient<T> const& gradient) {
    using Acc = accumulator_t<T>;
    auto const sizes = problem.sizes;
    int const padded = padded_dim<Acc>(sizes.head_dim);
    i64 const tiles = (sizes.seq_q + tile_queries - 1) / tile_queries;
    int const at_once = backward_tiles_at_once<Acc>(padded, tiles, 1, 1);
    for_each_item("pentad::attention_backward", exec, sizes.batch * sizes.kv_heads,
                  BackwardScratch<Acc>(nullptr, padded, at_once).bytes, [=](i64 item, void* memory) {
                      i64 const kv_head = item % sizes.kv_heads;
                      i64 const head = kv_head * sizes.heads_per_kv();
                      BackwardWork const work{
                          item / sizes.kv_heads, kv_head, head, head + sizes.heads_per_kv(), 0, sizes.seq_q, 0,
                          sizes.seq_k,           true,    true};
                      attention_backward_work(problem, gradient, work, at_once, memory);
                  });
}

/// One thread for each tile of keys and then one for each tile of queries: seven products, but many owners.
template <class Exec, class T>
void attention_backward_by_tile(Exec const& exec, AttentionProblem<T> const& problem,
                                AttentionGradient<T> const& gradient) {
    using Acc = accumulator_t<T>;
    auto const sizes = problem.sizes;
    int const padded = padded_dim<Acc>(sizes.head_dim);
    i64 const key_tiles = (sizes.seq_k + tile_keys - 1) / tile_keys;
    for_each_item(
        "pentad::attention_backward_dk_dv", exec, sizes.batch * sizes.kv_heads * key_tiles,
        BackwardScratch<Acc>(nullptr, padded, 1).bytes, [=](i64 item, void* memory) {
            i64 const kv_head = item / key_tiles % sizes.kv_heads;
            i64 const head = kv_head * sizes.heads_per_kv();
            i64 const key = item % key_tiles * tile_keys;
            BackwardWork const work{
                item / key_tiles / sizes.kv_heads,      kv_head, head, head + sizes.heads_per_kv(), 0, sizes.seq_q, key,
                std::min(key + tile_keys, sizes.seq_k), false,   true};
            attention_backward_work(problem, gradient, work, 1, memory);
        });
    i64 const query_tiles = (sizes.seq_q + tile_queries - 1) / tile_queries;
    int const at_once = backward_tiles_at_once<Acc>(padded, query_tiles, sizes.batch * sizes.heads, exec.concurrency());
    i64 const turns = (query_tiles + at_once - 1) / at_once;
    for_each_item("pentad::attention_backward_dq", exec, sizes.batch * sizes.heads * turns,
                  BackwardScratch<Acc>(nullptr, padded, at_once).bytes, [=](i64 item, void* memory) {
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
                      attention_backward_work(problem, gradient, work, at_once, memory);
                  });
}

template <class Exec, class T>
void attention_backward_host(Exec const& exec, AttentionProblem<T> const& problem,
                             AttentionGradient<T> const& gradient) {
    // By tile if there are so few kv heads that threads would idle for more than the two additional products cost.
    i64 const heads = problem.sizes.batch * problem.sizes.kv_heads;
    i64 const threads = exec.concurrency();
    i64 const turns = (heads + threads - 1) / threads;
    if (7 * heads >= 5 * turns * threads)
        attention_backward_by_head(exec, problem, gradient);
    else
        attention_backward_by_tile(exec, problem, gradient);
}

} // namespace pentad::kernels::detail
