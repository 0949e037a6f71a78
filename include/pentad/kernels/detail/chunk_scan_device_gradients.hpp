// The gradients of the chunked scan on a device, once the states at the boundaries between chunks and their gradients
// are there: a team for each tile of queries makes dq, one for each tile of keys dk and dv, each for all heads of a
// group.
#pragma once

#include <pentad/kernels/detail/chunk_scan_device_states.hpp>
#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/device_tiles.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

namespace pentad::kernels::detail {

/// What lies in the workspace of the backward pass.
template <class Acc>
struct DeviceScan {
    CumulativeDecay<Acc> cumulative;
    ScanStates<Acc> states, gradients;     // at the chunks' starts; of the states at their ends
    Acc *of_rows, *of_columns, *of_states; // [batch, heads, seq]: what the gradient of the decay is made of

    DeviceScan(ScanSizes const& sizes, i32 const* positions, Acc* workspace) : cumulative{workspace, sizes, positions} {
        std::size_t const tokens = device_tokens(sizes);
        of_rows = workspace + tokens;
        of_columns = of_rows + tokens;
        of_states = of_columns + tokens;
        states = {of_states + tokens, sizes.chunks(), sizes.state * sizes.head_dim};
        gradients = {states.data + device_states(sizes), states.boundaries, states.size};
    }
};

/// dq, and of each query what the pairs with keys before it contribute to the gradient of the decays.
template <class Exec, class T>
void scan_backward_dq_device(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                             DeviceScan<accumulator_t<T>> const& scan) {
    using Acc = accumulator_t<T>;
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;
    auto const sizes = problem.sizes;
    DeviceTiles<Exec, Acc> const shape(std::max(sizes.state, sizes.head_dim), 5, 1, 0);
    int const tile = shape.tile;
    int const row = shape.row;
    i64 const state = sizes.state, head_dim = sizes.head_dim;
    i64 const tiles = (sizes.chunk + tile - 1) / tile;
    auto const bytes = static_cast<std::ptrdiff_t>(shape.bytes);

    Kokkos::parallel_for(
        "pentad::chunk_scan_backward_dq",
        device_policy(exec, sizes.batch * sizes.groups * sizes.chunks() * tiles, shape.bytes),
        KOKKOS_LAMBDA(Member const& team) {
            Acc* const q = static_cast<Acc*>(team.team_scratch(0).get_shmem(bytes));
            Acc* const dq = q + tile * row;
            Acc* const k = dq + tile * row;
            Acc* const dy = k + tile * row;
            Acc* const v = dy + tile * row;
            Acc* const slopes = v + tile * row;
            int const first = static_cast<int>(tiles - 1 - team.league_rank() % tiles) * tile; // most keys first
            auto const at = group_place(sizes, team.league_rank() / tiles);
            int const left = sizes.length(at.chunk) - first;
            int const queries = left < tile ? left : tile;
            if (queries <= 0) return;

            load_device_tile(team, problem.q.row(at.batch, at.start + first, at.group), problem.q.seq_stride, queries,
                             state, q, row, Acc(1));
            clear_device_tile(team, queries, state, dq, row);
            for (i64 head = at.group * sizes.heads_per_group(); head < (at.group + 1) * sizes.heads_per_group();
                 ++head) {
                i64 const index = at.batch * sizes.heads + head;
                auto const decay = scan.cumulative.of_chunk(index, at.chunk);
                Acc const* const before = scan.states.at(index, at.chunk);
                Acc* const of_rows = scan.of_rows + index * sizes.seq + at.start + first;
                team.team_barrier();
                load_device_tile(team, gradient.dy.row(at.batch, at.start + first, head), gradient.dy.seq_stride,
                                 queries, head_dim, dy, row, Acc(1));
                team.team_barrier();
                Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](int i) {
                    Acc const factor = decay.from_start(first + i);
                    Acc sum = 0;
                    Kokkos::parallel_reduce(
                        Kokkos::ThreadVectorRange(team, state),
                        [&](i64 n, Acc& part) {
                            Acc const added = device_dot(dy + i * row, before + n * head_dim, head_dim) * factor;
                            dq[i * row + n] += added;
                            part += added * q[i * row + n];
                        },
                        sum);
                    of_rows[i] = sum; // every lane writes the same
                });
                for (int key = first_tile(decay.documents, first, tile); key < first + queries; key += tile) {
                    int const keys = first + queries - key < tile ? first + queries - key : tile;
                    team.team_barrier();
                    load_device_tile(team, problem.k.row(at.batch, at.start + key, at.group), problem.k.seq_stride,
                                     keys, state, k, row, Acc(1));
                    load_device_tile(team, problem.v.row(at.batch, at.start + key, head), problem.v.seq_stride, keys,
                                     head_dim, v, row, Acc(1));
                    team.team_barrier();
                    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](int i) {
                        int const visible = first + i + 1 - key;
                        int const count = visible < keys ? visible : keys;
                        int const start = first_seen_from(decay.documents, first + i, key);
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, start, count), [&](int j) {
                            slopes[i * tile + j] =
                                device_dot(dy + i * row, v + j * row, head_dim) * decay.between(key + j, first + i);
                        });
                        Acc sum = 0;
                        Kokkos::parallel_reduce(
                            Kokkos::ThreadVectorRange(team, start, visible - 1 < count ? visible - 1 : count),
                            [&](int j, Acc& part) {
                                part += slopes[i * tile + j] * device_dot(q + i * row, k + j * row, state);
                            },
                            sum);
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, state), [&](i64 n) {
                            Acc total = dq[i * row + n];
                            for (int j = start; j < count; ++j) total += slopes[i * tile + j] * k[j * row + n];
                            dq[i * row + n] = total;
                        });
                        Kokkos::single(Kokkos::PerThread(team), [&] { of_rows[i] += sum; });
                    });
                }
            }
            store_device_tile(team, dq, row, queries, state, gradient.dq.row(at.batch, at.start + first, at.group),
                              gradient.dq.seq_stride);
        });
}

/// dk and dv, and of each key what the pairs with queries after it contribute to the gradient of the decays.
template <class Exec, class T>
void scan_backward_dk_dv_device(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                                DeviceScan<accumulator_t<T>> const& scan) {
    using Acc = accumulator_t<T>;
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;
    auto const sizes = problem.sizes;
    DeviceTiles<Exec, Acc> const shape(std::max(sizes.state, sizes.head_dim), 6, 2, 0);
    int const tile = shape.tile;
    int const row = shape.row;
    i64 const state = sizes.state, head_dim = sizes.head_dim;
    i64 const tiles = (sizes.chunk + tile - 1) / tile;
    auto const bytes = static_cast<std::ptrdiff_t>(shape.bytes);

    Kokkos::parallel_for(
        "pentad::chunk_scan_backward_dk_dv",
        device_policy(exec, sizes.batch * sizes.groups * sizes.chunks() * tiles, shape.bytes),
        KOKKOS_LAMBDA(Member const& team) {
            Acc* const q = static_cast<Acc*>(team.team_scratch(0).get_shmem(bytes));
            Acc* const k = q + tile * row;
            Acc* const dk = k + tile * row;
            Acc* const dy = dk + tile * row;
            Acc* const v = dy + tile * row;
            Acc* const dv = v + tile * row;
            Acc* const mixed = dv + tile * row;
            Acc* const slopes = mixed + tile * tile;
            int const first = static_cast<int>(team.league_rank() % tiles) * tile;
            auto const at = group_place(sizes, team.league_rank() / tiles);
            int const length = sizes.length(at.chunk);
            int const keys = length - first < tile ? length - first : tile;
            if (keys <= 0) return;

            load_device_tile(team, problem.k.row(at.batch, at.start + first, at.group), problem.k.seq_stride, keys,
                             state, k, row, Acc(1));
            clear_device_tile(team, keys, state, dk, row);
            for (i64 head = at.group * sizes.heads_per_group(); head < (at.group + 1) * sizes.heads_per_group();
                 ++head) {
                i64 const index = at.batch * sizes.heads + head;
                auto const decay = scan.cumulative.of_chunk(index, at.chunk);
                Acc const* const behind = scan.gradients.at(index, at.chunk);
                Acc* const of_columns = scan.of_columns + index * sizes.seq + at.start + first;
                Acc* const of_states = scan.of_states + index * sizes.seq + at.start + first;
                team.team_barrier();
                load_device_tile(team, problem.v.row(at.batch, at.start + first, head), problem.v.seq_stride, keys,
                                 head_dim, v, row, Acc(1));
                team.team_barrier();
                Kokkos::parallel_for(Kokkos::TeamThreadRange(team, keys), [&](int j) {
                    Acc const factor = decay.to_end(first + j);
                    Acc sum = 0;
                    Kokkos::parallel_reduce(
                        Kokkos::ThreadVectorRange(team, head_dim),
                        [&](i64 d, Acc& part) {
                            Acc total = 0;
                            for (i64 n = 0; n < state; ++n) total += k[j * row + n] * behind[n * head_dim + d];
                            dv[j * row + d] = total * factor;
                            part += total * factor * v[j * row + d];
                        },
                        sum);
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, state), [&](i64 n) {
                        dk[j * row + n] += device_dot(v + j * row, behind + n * head_dim, head_dim) * factor;
                    });
                    Kokkos::single(Kokkos::PerThread(team), [&] {
                        of_states[j] = sum;
                        of_columns[j] = Acc(0);
                    });
                });
                for (int query = first; query < length; query += tile) {
                    if (decay.documents.first_seen(query) >= first + keys) break; // nor do later ones see these keys
                    int const queries = length - query < tile ? length - query : tile;
                    team.team_barrier();
                    load_device_tile(team, problem.q.row(at.batch, at.start + query, at.group), problem.q.seq_stride,
                                     queries, state, q, row, Acc(1));
                    load_device_tile(team, gradient.dy.row(at.batch, at.start + query, head), gradient.dy.seq_stride,
                                     queries, head_dim, dy, row, Acc(1));
                    team.team_barrier();
                    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, keys), [&](int j) {
                        int const hidden = first + j - query; // queries before the key
                        auto const weight = [&](int i) {
                            bool const sees = i >= hidden && first + j >= decay.documents.first_seen(query + i);
                            return sees ? decay.between(first + j, query + i) : Acc(0);
                        };
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, queries), [&](int i) {
                            mixed[j * tile + i] = device_dot(q + i * row, k + j * row, state) * weight(i);
                            slopes[j * tile + i] = device_dot(dy + i * row, v + j * row, head_dim);
                        });
                        Acc sum = 0;
                        Kokkos::parallel_reduce(
                            Kokkos::ThreadVectorRange(team, queries),
                            [&](int i, Acc& part) {
                                if (i > hidden) part += mixed[j * tile + i] * slopes[j * tile + i];
                            },
                            sum);
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, queries),
                                             [&](int i) { slopes[j * tile + i] *= weight(i); });
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, head_dim), [&](i64 d) {
                            Acc total = dv[j * row + d];
                            for (int i = 0; i < queries; ++i) total += mixed[j * tile + i] * dy[i * row + d];
                            dv[j * row + d] = total;
                        });
                        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, state), [&](i64 n) {
                            Acc total = dk[j * row + n];
                            for (int i = 0; i < queries; ++i) total += slopes[j * tile + i] * q[i * row + n];
                            dk[j * row + n] = total;
                        });
                        Kokkos::single(Kokkos::PerThread(team), [&] { of_columns[j] += sum; });
                    });
                }
                store_device_tile(team, dv, row, keys, head_dim, gradient.dv.row(at.batch, at.start + first, head),
                                  gradient.dv.seq_stride);
            }
            store_device_tile(team, dk, row, keys, state, gradient.dk.row(at.batch, at.start + first, at.group),
                              gradient.dk.seq_stride);
        });
}

} // namespace pentad::kernels::detail
