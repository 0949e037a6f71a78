// The forward pass of attention on a device: a team for each tile of queries, one pass over the tiles
// of keys with an online softmax. A warp has a row of the tile, its lanes along keys or along the elements of a head.
#pragma once

#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/detail/device_tiles.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::kernels::detail {

/// What an element at the destination and the tile's unnormalised output are multiplied with. Only reads.
template <class Acc>
struct EndFactors {
    Acc keep, add;
};
template <class T, class Acc = accumulator_t<T>>
KOKKOS_FUNCTION EndFactors<Acc> end_factors(WriteResult<T> const& end, i64, i64, i64 head, Acc max, Acc sum) {
    return {Acc(0), softmax_end(end, head, max, sum).factor};
}
template <class T, class Acc = accumulator_t<T>>
KOKKOS_FUNCTION EndFactors<Acc> end_factors(MergeState<T> const& end, i64 batch, i64 query, i64 head, Acc max,
                                            Acc sum) {
    if (sum == Acc(0)) return {Acc(1), Acc(0)};
    Acc const before = end.max.row(batch, head)[query];
    Acc const together = before > max ? before : max;
    return {Kokkos::exp(before - together), Kokkos::exp(max - together)};
}

template <class T, class Acc = accumulator_t<T>>
KOKKOS_FUNCTION void end_element(WriteResult<T> const& end, i64 batch, i64 query, i64 head, i64 d,
                                 EndFactors<Acc> factors, Acc value) {
    end.o.row(batch, query, head)[d] = T(value * factors.add);
}
template <class T, class Acc = accumulator_t<T>>
KOKKOS_FUNCTION void end_element(MergeState<T> const& end, i64 batch, i64 query, i64 head, i64 d,
                                 EndFactors<Acc> factors, Acc value) {
    Acc& element = end.output.row(batch, query, head)[d];
    element = element * factors.keep + value * factors.add;
}

template <class T, class Acc = accumulator_t<T>>
KOKKOS_FUNCTION void end_row(WriteResult<T> const& end, i64 batch, i64 query, i64 head, Acc max, Acc sum) {
    end.lse.row(batch, head)[query] = softmax_end(end, head, max, sum).lse;
}
template <class T, class Acc = accumulator_t<T>>
KOKKOS_FUNCTION void end_row(MergeState<T> const& end, i64 batch, i64 query, i64 head, Acc max, Acc sum) {
    if (sum == Acc(0)) return;
    auto const factors = end_factors(end, batch, query, head, max, sum);
    Acc& largest = end.max.row(batch, head)[query];
    Acc& total = end.sum.row(batch, head)[query];
    largest = largest > max ? largest : max;
    total = total * factors.keep + sum * factors.add;
}

/// @tparam Scores PlainScores or ChangedScores
template <class Exec, class T, class End, class Scores>
void attention_forward_device(Exec const& exec, AttentionProblem<T> const& problem, End const& end,
                              Scores const& scores_of) {
    using Acc = accumulator_t<T>;
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;
    auto const sizes = problem.sizes;
    int const row = device_row(sizes.head_dim), v_row = device_row(sizes.value_dim);
    DeviceTiles<Exec, Acc> const shape(2 * row + 2 * v_row, 1, 2);
    int const tile = shape.tile;
    i64 const head_dim = sizes.head_dim, value_dim = sizes.value_dim;
    i64 const tiles = (sizes.seq_q + tile - 1) / tile;
    auto const bytes = static_cast<std::ptrdiff_t>(shape.bytes);

    Kokkos::parallel_for(
        "pentad::attention_forward", device_policy(exec, sizes.batch * sizes.heads * tiles, shape.bytes),
        KOKKOS_LAMBDA(Member const& team) {
            Acc* const q = static_cast<Acc*>(team.team_scratch(0).get_shmem(bytes));
            Acc* const k = q + tile * row;
            Acc* const v = k + tile * row;
            Acc* const output = v + tile * v_row;
            Acc* const scores = output + tile * v_row;
            Acc* const max = scores + tile * tile;
            Acc* const sum = max + tile;
            i64 const first = (tiles - 1 - team.league_rank() % tiles) * tile; // most keys first
            i64 const head = team.league_rank() / tiles % sizes.heads;
            i64 const batch = team.league_rank() / tiles / sizes.heads;
            i64 const kv_head = head / sizes.heads_per_kv();
            int const queries = static_cast<int>(sizes.seq_q - first < tile ? sizes.seq_q - first : tile);
            auto const seen = visible_to_tile(problem.mask, sizes.seq_k, batch, first, queries, tile);
            auto const head_scores = scores_of.of_head(head);
            constexpr Acc infinity = Kokkos::Experimental::infinity_v<Acc>;

            load_device_tile(team, problem.q.row(batch, first, head), problem.q.seq_stride, queries, head_dim, q, row,
                             Acc(problem.scores.scale));
            Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](int i) {
                Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, value_dim),
                                     [&](i64 d) { output[i * v_row + d] = Acc(0); });
                max[i] = -infinity;
                sum[i] = Acc(0);
            });

            for (i64 key = seen.begin; key < seen.end; key += tile) {
                int const keys = static_cast<int>(seen.end - key < tile ? seen.end - key : tile);
                team.team_barrier();
                load_device_tile(team, problem.k.row(batch, key, kv_head), problem.k.seq_stride, keys, head_dim, k, row,
                                 Acc(1));
                load_device_tile(team, problem.v.row(batch, key, kv_head), problem.v.seq_stride, keys, value_dim, v,
                                 v_row, Acc(1));
                team.team_barrier();
                Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](int i) {
                    Acc* const score = scores + i * tile;
                    auto const visible = visible_keys(problem.mask, sizes.seq_k, batch, first + i);
                    int const from = in_device_tile(visible.begin, key, keys);
                    int const until = in_device_tile(visible.end, key, keys);
                    if (from >= until) return;
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, from, until), [&](int j) {
                        Acc const product = device_dot(q + i * row, k + j * row, head_dim);
                        score[j] = head_scores.at(product, distance(problem.mask, first + i, key + j)).value;
                    });
                    Acc largest = -infinity;
                    Kokkos::parallel_reduce(
                        Kokkos::ThreadVectorRange(team, from, until),
                        [&](int j, Acc& best) { best = score[j] > best ? score[j] : best; }, Kokkos::Max<Acc>(largest));
                    Acc const before = max[i];
                    Acc const now = before > largest ? before : largest;
                    Acc const factor = Kokkos::exp(before - now);
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, from, until),
                                         [&](int j) { score[j] = Kokkos::exp(score[j] - now); });
                    Acc added = Acc(0);
                    Kokkos::parallel_reduce(
                        Kokkos::ThreadVectorRange(team, from, until), [&](int j, Acc& part) { part += score[j]; },
                        added);
                    Acc const total = sum[i] * factor + added;
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, value_dim), [&](i64 d) {
                        Acc value = output[i * v_row + d] * factor;
                        for (int j = from; j < until; ++j) value += score[j] * v[j * v_row + d];
                        output[i * v_row + d] = value;
                    });
                    max[i] = now; // every lane writes the same
                    sum[i] = total;
                });
            }

            Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](int i) {
                auto const factors = end_factors(end, batch, first + i, head, max[i], sum[i]);
                Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, value_dim), [&](i64 d) {
                    end_element(end, batch, first + i, head, d, factors, output[i * v_row + d]);
                });
                Kokkos::single(Kokkos::PerThread(team), [&] { end_row(end, batch, first + i, head, max[i], sum[i]); });
            });
        });
}

template <class Exec, class T, class End>
void attention_forward_device(Exec const& exec, AttentionProblem<T> const& problem, End const& end) {
    with_scores<accumulator_t<T>>(
        problem.scores, [&](auto const& scores_of) { attention_forward_device(exec, problem, end, scores_of); });
}

} // namespace pentad::kernels::detail
