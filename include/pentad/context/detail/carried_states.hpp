// The arithmetic of states that are carried along a sequence: rows of a state that share a decay.
#pragma once

#include <pentad/kernels/dry.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::context::detail {

/// Shapes, throughout: states are [batch, ranks, rows, width], contiguous, with one rank for those of this rank alone;
/// log decays are [batch, ranks, rows], and null where nothing decays.
struct CarriedSizes {
    std::size_t batch, rows, width;

    [[nodiscard]] std::size_t all_rows() const { return batch * rows; }
};

/// The place of a row of this rank's states among those of `rank` of all gathered ones.
KOKKOS_INLINE_FUNCTION i64 gathered_row(i64 row, i64 rows, i64 ranks, i64 rank) {
    return (row / rows * ranks + rank) * rows + row % rows;
}

template <class A>
KOKKOS_FUNCTION A decay_factor(A const* log_decay, i64 at) {
    return log_decay == nullptr ? A(1) : Kokkos::exp(log_decay[at]);
}

/// leaving = own + exp(log decay) arriving.
template <class A, class Exec>
void pass_states(Exec const& exec, CarriedSizes const& sizes, A const* own, A const* log_decay, A const* arriving,
                 A* leaving) {
    int const width = static_cast<int>(sizes.width);
    kernels::for_each_row(
        "pentad::pass_states", exec, sizes.all_rows(), sizes.width, KOKKOS_LAMBDA(kernels::Row<Exec> const& row) {
            A const factor = decay_factor(log_decay, row.index());
            i64 const at = row.index() * width;
            row.each(width, [&](int i) { leaving[at + i] = own[at + i] + factor * arriving[at + i]; });
        });
}

/// initial = what the states of the ranks before `mine` leave, merged in their order.
template <class A, class Exec>
void merge_states(Exec const& exec, CarriedSizes const& sizes, i64 ranks, i64 mine, A const* gathered,
                  A const* log_decays, A* initial) {
    int const width = static_cast<int>(sizes.width);
    i64 const rows = static_cast<i64>(sizes.rows);
    kernels::for_each_row(
        "pentad::merge_states", exec, sizes.all_rows(), sizes.width, KOKKOS_LAMBDA(kernels::Row<Exec> const& row) {
            A* const to = initial + row.index() * width;
            row.each(width, [&](int i) { to[i] = A(0); });
            for (i64 rank = 0; rank < mine; ++rank) {
                i64 const at = gathered_row(row.index(), rows, ranks, rank);
                A const factor = decay_factor(log_decays, at);
                A const* const from = gathered + at * width;
                row.each(width, [&](int i) { to[i] = from[i] + factor * to[i]; });
            }
        });
}

/// The adjoint of merge_states with respect to the states: what the gradient of this rank's initial state contributes
/// to that of each gathered one.
template <class A, class Exec>
void spread_gradient(Exec const& exec, CarriedSizes const& sizes, i64 ranks, i64 mine, A const* d_initial,
                     A const* log_decays, A* d_gathered) {
    int const width = static_cast<int>(sizes.width);
    i64 const rows = static_cast<i64>(sizes.rows);
    kernels::for_each_row(
        "pentad::spread_gradient", exec, sizes.all_rows(), sizes.width, KOKKOS_LAMBDA(kernels::Row<Exec> const& row) {
            A const* from = d_initial + row.index() * width;
            A factor = A(1);
            for (i64 rank = ranks - 1; rank >= 0; --rank) {
                i64 const at = gathered_row(row.index(), rows, ranks, rank);
                A* const to = d_gathered + at * width;
                if (rank >= mine) {
                    row.each(width, [&](int i) { to[i] = A(0); });
                    continue;
                }
                row.each(width, [&](int i) { to[i] = factor * from[i]; });
                factor = decay_factor(log_decays, at);
                from = to;
            }
        });
}

/// d_log_decay = exp(log decay) <initial, d_state>: a rank's decay stands between the states before it and all that
/// comes of the one that it leaves.
template <class A, class Exec>
void decay_gradient(Exec const& exec, CarriedSizes const& sizes, A const* initial, A const* log_decay, A const* d_state,
                    A* d_log_decay) {
    int const width = static_cast<int>(sizes.width);
    kernels::for_each_row(
        "pentad::decay_gradient", exec, sizes.all_rows(), sizes.width, KOKKOS_LAMBDA(kernels::Row<Exec> const& row) {
            i64 const at = row.index() * width;
            A const sum = row.template sum<A>(width, [&](int i) { return initial[at + i] * d_state[at + i]; });
            row.once([&] { d_log_decay[row.index()] = sum * Kokkos::exp(log_decay[row.index()]); });
        });
}

} // namespace pentad::context::detail
