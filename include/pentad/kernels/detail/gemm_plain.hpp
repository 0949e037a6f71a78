// The matrix product where no library is at hand: tiles in team scratch, sums in the accumulator
// type. Correct on every Kokkos backend, and simple; nobody trains with it.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/detail/gemm_problem.hpp>
#include <pentad/kernels/rows.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::kernels::detail {

/// C *= beta, without reading C when beta is 0.
template <class Out, class Exec>
void gemm_scale(Exec const& exec, i64 m, i64 n, double beta, Out* c, i64 c_stride) {
    if (beta == 1.0) return;
    using Acc = accumulator_t<Out>;
    auto const factor = static_cast<Acc>(beta);
    Kokkos::parallel_for(
        "pentad::gemm_scale", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, m * n),
        KOKKOS_LAMBDA(i64 index) {
            Out& element = c[index / n * c_stride + index % n];
            element = factor == Acc(0) ? Out(Acc(0)) : Out(factor * Acc(element));
        });
}
PENTAD_KERNEL(gemm_scale)

template <class Exec, class In, class Out>
void gemm_plain(Exec const& exec, GemmProblem<In, Out> const& p) {
    using Acc = accumulator_t<Out>;
    using Policy = Kokkos::TeamPolicy<Exec>;
    using Member = typename Policy::member_type;
    using Tile = Kokkos::View<Acc**, Kokkos::LayoutRight, typename Exec::scratch_memory_space, Kokkos::MemoryUnmanaged>;
    constexpr int tile = 32;

    i64 const tiles_n = (p.n + tile - 1) / tile;
    i64 const tiles = (p.m + tile - 1) / tile * tiles_n;
    auto const team_size = runs_on_host<Exec> ? 1 : 256;
    auto const scratch = Kokkos::PerTeam(3 * Tile::shmem_size(tile, tile));
    auto const alpha = static_cast<Acc>(p.alpha);
    auto const beta = static_cast<Acc>(p.beta);

    Kokkos::parallel_for(
        "pentad::gemm_plain", Policy(exec, static_cast<int>(tiles), team_size).set_scratch_size(0, scratch),
        KOKKOS_LAMBDA(Member const& team) {
            Tile a(team.team_scratch(0), tile, tile), b(team.team_scratch(0), tile, tile);
            Tile sum(team.team_scratch(0), tile, tile);
            i64 const row = team.league_rank() / tiles_n * tile;
            i64 const column = team.league_rank() % tiles_n * tile;
            auto const elements = Kokkos::TeamThreadRange(team, tile * tile);

            Kokkos::parallel_for(elements, [&](int e) { sum(e / tile, e % tile) = Acc(0); });
            for (i64 depth = 0; depth < p.k; depth += tile) {
                team.team_barrier();
                // Neighbouring threads read neighbouring addresses, whichever way the operand is stored.
                Kokkos::parallel_for(elements, [&](int e) {
                    int const slow = e / tile;
                    int const fast = e % tile;
                    i64 const ar = row + (p.transpose_a ? fast : slow);
                    i64 const ak = depth + (p.transpose_a ? slow : fast);
                    i64 const bk = depth + (p.transpose_b ? fast : slow);
                    i64 const bc = column + (p.transpose_b ? slow : fast);
                    a(p.transpose_a ? fast : slow, p.transpose_a ? slow : fast) =
                        ar < p.m && ak < p.k ? Acc(p.a[p.transpose_a ? ak * p.a_stride + ar : ar * p.a_stride + ak])
                                             : Acc(0);
                    b(p.transpose_b ? fast : slow, p.transpose_b ? slow : fast) =
                        bk < p.k && bc < p.n ? Acc(p.b[p.transpose_b ? bc * p.b_stride + bk : bk * p.b_stride + bc])
                                             : Acc(0);
                });
                team.team_barrier();
                Kokkos::parallel_for(elements, [&](int e) {
                    Acc partial = Acc(0);
                    for (int d = 0; d < tile; ++d) partial += a(e / tile, d) * b(d, e % tile);
                    sum(e / tile, e % tile) += partial;
                });
            }
            // Each thread reads back the sums that it wrote itself: no barrier.
            Kokkos::parallel_for(elements, [&](int e) {
                i64 const i = row + e / tile;
                i64 const j = column + e % tile;
                if (i >= p.m || j >= p.n) return;
                Out& element = p.c[i * p.c_stride + j];
                Acc const value = alpha * sum(e / tile, e % tile);
                element = Out(beta == Acc(0) ? value : value + beta * Acc(element));
            });
        });
}

} // namespace pentad::kernels::detail
