// The chunked scan on a device, forward: once the states at the chunks' starts are there, a team for each tile of
// queries makes their outputs from the state and from the tiles of keys before them in their chunk.
#pragma once

#include <pentad/kernels/detail/chunk_scan_device_states.hpp>
#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/device_tiles.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

namespace pentad::kernels::detail {

inline std::size_t device_forward_workspace(ScanSizes const& sizes) {
    return device_tokens(sizes) + device_states(sizes);
}

template <class Exec, class T>
void make_outputs_device(Exec const& exec, ScanProblem<T> const& problem, Heads<T> const& y,
                         CumulativeDecay<accumulator_t<T>> const& cumulative,
                         ScanStates<accumulator_t<T>> const& states) {
    using Acc = accumulator_t<T>;
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;
    auto const sizes = problem.sizes;
    DeviceTiles<Exec, Acc> const shape(std::max(sizes.state, sizes.head_dim), 4, 1, 0);
    int const tile = shape.tile;
    int const row = shape.row;
    i64 const state = sizes.state, head_dim = sizes.head_dim;
    i64 const tiles = (sizes.chunk + tile - 1) / tile;
    auto const bytes = static_cast<std::ptrdiff_t>(shape.bytes);

    Kokkos::parallel_for(
        "pentad::chunk_scan_outputs",
        device_policy(exec, sizes.batch * sizes.heads * sizes.chunks() * tiles, shape.bytes),
        KOKKOS_LAMBDA(Member const& team) {
            Acc* const q = static_cast<Acc*>(team.team_scratch(0).get_shmem(bytes));
            Acc* const k = q + tile * row;
            Acc* const v = k + tile * row;
            Acc* const output = v + tile * row;
            Acc* const scores = output + tile * row;
            auto const at = chunk_place(sizes, team.league_rank() / tiles);
            int const first = static_cast<int>(tiles - 1 - team.league_rank() % tiles) * tile; // most keys first
            int const left = sizes.length(at.chunk) - first;
            int const queries = left < tile ? left : tile;
            if (queries <= 0) return;
            auto const decay = cumulative.of_chunk(at.index, at.chunk);
            Acc const* const before = states.at(at.index, at.chunk);

            load_device_tile(team, problem.q.row(at.batch, at.start + first, at.group), problem.q.seq_stride, queries,
                             state, q, row, Acc(1));
            team.team_barrier();
            Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](int i) {
                Acc const factor = decay.from_start(first + i);
                Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, head_dim), [&](i64 d) {
                    Acc sum = 0;
                    for (i64 n = 0; n < state; ++n) sum += q[i * row + n] * before[n * head_dim + d];
                    output[i * row + d] = sum * factor;
                });
            });
            for (int key = first_tile(decay.documents, first, tile); key < first + queries; key += tile) {
                int const keys = first + queries - key < tile ? first + queries - key : tile;
                team.team_barrier();
                load_device_tile(team, problem.k.row(at.batch, at.start + key, at.group), problem.k.seq_stride, keys,
                                 state, k, row, Acc(1));
                load_device_tile(team, problem.v.row(at.batch, at.start + key, at.head), problem.v.seq_stride, keys,
                                 head_dim, v, row, Acc(1));
                team.team_barrier();
                Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](int i) {
                    int const visible = first + i + 1 - key;
                    int const count = visible < keys ? visible : keys;
                    int const start = first_seen_from(decay.documents, first + i, key);
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, start, count), [&](int j) {
                        scores[i * tile + j] =
                            device_dot(q + i * row, k + j * row, state) * decay.between(key + j, first + i);
                    });
                    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, head_dim), [&](i64 d) {
                        Acc sum = output[i * row + d];
                        for (int j = start; j < count; ++j) sum += scores[i * tile + j] * v[j * row + d];
                        output[i * row + d] = sum;
                    });
                });
            }
            store_device_tile(team, output, row, queries, head_dim, y.row(at.batch, at.start + first, at.head),
                              y.seq_stride);
        });
}

/// Without outputs only the states, and the total decay where it is wanted.
template <class Exec, class T>
void scan_forward_device(Exec const& exec, ScanProblem<T> const& problem, ScanResult<T> const& result,
                         accumulator_t<T>* workspace) {
    using Acc = accumulator_t<T>;
    auto const& sizes = problem.sizes;
    CumulativeDecay<Acc> const cumulative{workspace, sizes, problem.positions};
    ScanStates<Acc> const states{workspace + device_tokens(sizes), sizes.chunks(), sizes.state * sizes.head_dim};
    sum_decays_device(exec, problem.decay, cumulative);
    add_to_states_device(exec, problem.k, problem.v, true, cumulative, states);
    pass_states_device(exec, true, cumulative, states, result.initial, result.final_state);
    if (result.y.data != nullptr) make_outputs_device(exec, problem, result.y, cumulative, states);
    if (result.total_decay != nullptr) sum_total_decay_device(exec, cumulative, result.total_decay);
}

} // namespace pentad::kernels::detail
