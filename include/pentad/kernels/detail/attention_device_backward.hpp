// The backward pass of attention on a device, in two kernels so that each sum has one owner: a team for
// each tile of queries adds to dq, a team for each tile of keys (for all query heads that share it) to dk and dv.
#pragma once

#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/detail/device_tiles.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::kernels::detail {

/// The probability with which query i sees key j. lse = -infinity marks a query that saw nothing.
template <class Acc>
KOKKOS_FUNCTION Acc device_probability(Acc score, Acc lse) {
    return lse == -Kokkos::Experimental::infinity_v<Acc> ? Acc(0) : score > lse ? Acc(1) : Kokkos::exp(score - lse);
}

template <class Exec, class T, class Scores>
void attention_backward_dq_device(Exec const& exec, AttentionProblem<T> const& problem,
                                  AttentionGradient<T> const& gradient, Scores const& scores_of) {
    using Acc = accumulator_t<T>;
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;
    auto const sizes = problem.sizes;
    int const row = device_row(sizes.head_dim), v_row = device_row(sizes.value_dim);
    DeviceTiles<Exec, Acc> const shape(3 * row + 2 * v_row, 1, 0);
    int const tile = shape.tile;
    i64 const head_dim = sizes.head_dim, value_dim = sizes.value_dim;
    i64 const tiles = (sizes.seq_q + tile - 1) / tile;
    auto const bytes = static_cast<std::ptrdiff_t>(shape.bytes);
    auto const scale = static_cast<Acc>(problem.scores.scale);

    Kokkos::parallel_for(
        "pentad::attention_backward_dq", device_policy(exec, sizes.batch * sizes.heads * tiles, shape.bytes),
        KOKKOS_LAMBDA(Member const& team) {
            Acc* const q = static_cast<Acc*>(team.team_scratch(0).get_shmem(bytes));
            Acc* const d_o = q + tile * row;
            Acc* const dq = d_o + tile * v_row;
            Acc* const k = dq + tile * row;
            Acc* const v = k + tile * row;
            Acc* const d_scores = v + tile * v_row;
            i64 const first = (tiles - 1 - team.league_rank() % tiles) * tile; // most keys first
            i64 const head = team.league_rank() / tiles % sizes.heads;
            i64 const batch = team.league_rank() / tiles / sizes.heads;
            i64 const kv_head = head / sizes.heads_per_kv();
            int const queries = static_cast<int>(sizes.seq_q - first < tile ? sizes.seq_q - first : tile);
            auto const seen = visible_to_tile(problem.mask, sizes.seq_k, batch, first, queries, tile);
            Acc const* const lse = gradient.lse.row(batch, head) + first;
            Acc const* const delta = gradient.delta.row(batch, head) + first;
            auto const head_scores = scores_of.of_head(head);

            load_device_tile(team, problem.q.row(batch, first, head), problem.q.seq_stride, queries, head_dim, q, row,
                             Acc(1));
            load_device_tile(team, gradient.d_o.row(batch, first, head), gradient.d_o.seq_stride, queries, value_dim,
                             d_o, v_row, Acc(1));
            clear_device_tile(team, queries, head_dim, dq, row);
            for (i64 key = seen.begin; key < seen.end; key += tile) {
                int const keys = static_cast<int>(seen.end - key < tile ? seen.end - key : tile);
                team.team_barrier();
                load_device_tile(team, problem.k.row(batch, key, kv_head), problem.k.seq_stride, keys, head_dim, k, row,
                                 Acc(1));
                load_device_tile(team, problem.v.row(batch, key, kv_head), problem.v.seq_stride, keys, value_dim, v,
                                 v_row, Acc(1));
                team.team_barrier();
                Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](int i) {
                    auto const visible = visible_keys(problem.mask, sizes.seq_k, batch, first + i);
                    int const from = in_device_tile(visible.begin, key, keys);
                    int const until = in_device_tile(visible.end, key, keys);
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, from, until), [&](int j) {
                        auto const score = head_scores.at(device_dot(q + i * row, k + j * row, head_dim) * scale,
                                                          distance(problem.mask, first + i, key + j));
                        Acc const slope = device_dot(d_o + i * v_row, v + j * v_row, value_dim) - delta[i];
                        d_scores[i * tile + j] = device_probability(score.value, lse[i]) * slope * score.slope * scale;
                    });
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, head_dim), [&](i64 d) {
                        Acc sum = dq[i * row + d];
                        for (int j = from; j < until; ++j) sum += d_scores[i * tile + j] * k[j * row + d];
                        dq[i * row + d] = sum;
                    });
                });
            }
            Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](int i) {
                Acc* const to = gradient.dq.row(batch, first + i, head);
                Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, head_dim),
                                     [&](i64 d) { to[d] += dq[i * row + d]; });
            });
        });
}

template <class Exec, class T, class Scores>
void attention_backward_dk_dv_device(Exec const& exec, AttentionProblem<T> const& problem,
                                     AttentionGradient<T> const& gradient, Scores const& scores_of) {
    using Acc = accumulator_t<T>;
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;
    auto const sizes = problem.sizes;
    int const row = device_row(sizes.head_dim), v_row = device_row(sizes.value_dim);
    DeviceTiles<Exec, Acc> const shape(3 * row + 3 * v_row, 2, 0);
    int const tile = shape.tile;
    i64 const head_dim = sizes.head_dim, value_dim = sizes.value_dim;
    i64 const shared = head_dim < value_dim ? head_dim : value_dim;
    i64 const tiles = (sizes.seq_k + tile - 1) / tile;
    auto const bytes = static_cast<std::ptrdiff_t>(shape.bytes);
    auto const scale = static_cast<Acc>(problem.scores.scale);

    Kokkos::parallel_for(
        "pentad::attention_backward_dk_dv", device_policy(exec, sizes.batch * sizes.kv_heads * tiles, shape.bytes),
        KOKKOS_LAMBDA(Member const& team) {
            Acc* const q = static_cast<Acc*>(team.team_scratch(0).get_shmem(bytes));
            Acc* const d_o = q + tile * row;
            Acc* const k = d_o + tile * v_row;
            Acc* const v = k + tile * row;
            Acc* const dk = v + tile * v_row;
            Acc* const dv = dk + tile * row;
            Acc* const scores = dv + tile * v_row;
            Acc* const d_scores = scores + tile * tile;
            i64 const first = team.league_rank() % tiles * tile;
            i64 const kv_head = team.league_rank() / tiles % sizes.kv_heads;
            i64 const batch = team.league_rank() / tiles / sizes.kv_heads;
            int const keys = static_cast<int>(sizes.seq_k - first < tile ? sizes.seq_k - first : tile);

            load_device_tile(team, problem.k.row(batch, first, kv_head), problem.k.seq_stride, keys, head_dim, k, row,
                             Acc(1));
            load_device_tile(team, problem.v.row(batch, first, kv_head), problem.v.seq_stride, keys, value_dim, v,
                             v_row, Acc(1));
            clear_device_tile(team, keys, head_dim, dk, row);
            clear_device_tile(team, keys, value_dim, dv, v_row);
            for (i64 head = kv_head * sizes.heads_per_kv(); head < (kv_head + 1) * sizes.heads_per_kv(); ++head) {
                auto const head_scores = scores_of.of_head(head);
                for (i64 query = 0; query < sizes.seq_q; query += tile) {
                    int const queries = static_cast<int>(sizes.seq_q - query < tile ? sizes.seq_q - query : tile);
                    auto const seen = visible_to_tile(problem.mask, sizes.seq_k, batch, query, queries, 1);
                    if (seen.end <= first || seen.begin >= first + keys) continue;
                    Acc const* const lse = gradient.lse.row(batch, head) + query;
                    Acc const* const delta = gradient.delta.row(batch, head) + query;
                    team.team_barrier();
                    load_device_tile(team, problem.q.row(batch, query, head), problem.q.seq_stride, queries, head_dim,
                                     q, row, Acc(1));
                    load_device_tile(team, gradient.d_o.row(batch, query, head), gradient.d_o.seq_stride, queries,
                                     value_dim, d_o, v_row, Acc(1));
                    team.team_barrier();
                    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, keys), [&](int j) {
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, queries), [&](int i) {
                            auto const visible = visible_keys(problem.mask, sizes.seq_k, batch, query + i);
                            bool const sees = visible.begin <= first + j && first + j < visible.end;
                            auto const score = head_scores.at(device_dot(q + i * row, k + j * row, head_dim) * scale,
                                                              distance(problem.mask, query + i, first + j));
                            Acc const slope = device_dot(d_o + i * v_row, v + j * v_row, value_dim) - delta[i];
                            Acc const probability = sees ? device_probability(score.value, lse[i]) : Acc(0);
                            scores[j * tile + i] = probability;
                            d_scores[j * tile + i] = probability * slope * score.slope * scale;
                        });
                        // Two sums at once, which do not wait for each other, as far as both go.
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, shared), [&](i64 d) {
                            Acc sum_k = dk[j * row + d];
                            Acc sum_v = dv[j * v_row + d];
                            for (int i = 0; i < queries; ++i) {
                                sum_k += d_scores[j * tile + i] * q[i * row + d];
                                sum_v += scores[j * tile + i] * d_o[i * v_row + d];
                            }
                            dk[j * row + d] = sum_k;
                            dv[j * v_row + d] = sum_v;
                        });
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, shared, head_dim), [&](i64 d) {
                            Acc sum = dk[j * row + d];
                            for (int i = 0; i < queries; ++i) sum += d_scores[j * tile + i] * q[i * row + d];
                            dk[j * row + d] = sum;
                        });
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, shared, value_dim), [&](i64 d) {
                            Acc sum = dv[j * v_row + d];
                            for (int i = 0; i < queries; ++i) sum += scores[j * tile + i] * d_o[i * v_row + d];
                            dv[j * v_row + d] = sum;
                        });
                    });
                }
            }
            Kokkos::parallel_for(Kokkos::TeamThreadRange(team, keys), [&](int j) {
                Acc* const to_k = gradient.dk.row(batch, first + j, kv_head);
                Acc* const to_v = gradient.dv.row(batch, first + j, kv_head);
                Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, head_dim),
                                     [&](i64 d) { to_k[d] += dk[j * row + d]; });
                Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, value_dim),
                                     [&](i64 d) { to_v[d] += dv[j * v_row + d]; });
            });
        });
}

template <class Exec, class T>
void attention_backward_device(Exec const& exec, AttentionProblem<T> const& problem,
                               AttentionGradient<T> const& gradient) {
    with_scores<accumulator_t<T>>(problem.scores, [&](auto const& scores_of) {
        attention_backward_dk_dv_device(exec, problem, gradient, scores_of);
        attention_backward_dq_device(exec, problem, gradient, scores_of);
    });
}

} // namespace pentad::kernels::detail
