// The arithmetic of states that are carried along a sequence: rows of a state that share a decay.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/dry.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::context::detail {

/// Shapes, throughout: states are [batch, stretches, rows, width], contiguous; log decays are [batch, stretches, rows],
/// and null where nothing decays. A running state has one stretch.
struct CarriedSizes {
    std::size_t batch, rows, width;

    [[nodiscard]] std::size_t all_rows() const { return batch * rows; }
};

/// One of the stretches of states and of their log decays.
struct StretchOf {
    i64 stretch, stretches;

    /// The place of row `row` of a running state.
    [[nodiscard]] KOKKOS_FUNCTION i64 row(i64 row, i64 rows) const {
        return (row / rows * stretches + stretch) * rows + row % rows;
    }
};

template <class A>
KOKKOS_FUNCTION A decay_factor(A const* log_decay, i64 at) {
    return log_decay == nullptr ? A(1) : Kokkos::exp(log_decay[at]);
}

/// leaving = own + exp(log decay) arriving, of one stretch each.
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
PENTAD_KERNEL_OF_ACCUMULATORS(pass_states)

/// running = state + exp(log decay) running, for a stretch of `states`; before that, where `before` is not null, it is
/// copied to stretch `own` of that.
template <class A, class Exec>
void advance(Exec const& exec, CarriedSizes const& sizes, A const* states, A const* log_decays, StretchOf of,
             A* running, A* before, StretchOf own) {
    int const width = static_cast<int>(sizes.width);
    i64 const rows = static_cast<i64>(sizes.rows);
    kernels::for_each_row(
        "pentad::advance_state", exec, sizes.all_rows(), sizes.width, KOKKOS_LAMBDA(kernels::Row<Exec> const& row) {
            A* const run = running + row.index() * width;
            if (before != nullptr) {
                A* const copy = before + own.row(row.index(), rows) * width;
                row.each(width, [&](int i) { copy[i] = run[i]; });
            }
            i64 const at = of.row(row.index(), rows);
            A const factor = decay_factor(log_decays, at);
            A const* const from = states + at * width;
            row.each(width, [&](int i) { run[i] = from[i] + factor * run[i]; });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(advance)

/// The adjoint: the gradient of the state of a stretch is the running one, which then decays; where `d_before` is not
/// null, its stretch `own` is added to it.
template <class A, class Exec>
void retreat(Exec const& exec, CarriedSizes const& sizes, A const* log_decays, StretchOf of, A* running, A* d_states,
             A const* d_before, StretchOf own) {
    int const width = static_cast<int>(sizes.width);
    i64 const rows = static_cast<i64>(sizes.rows);
    kernels::for_each_row(
        "pentad::retreat_state", exec, sizes.all_rows(), sizes.width, KOKKOS_LAMBDA(kernels::Row<Exec> const& row) {
            A* const run = running + row.index() * width;
            i64 const at = of.row(row.index(), rows);
            A const factor = decay_factor(log_decays, at);
            A* const to = d_states + at * width;
            row.each(width, [&](int i) {
                to[i] = run[i];
                run[i] = factor * run[i];
            });
            if (d_before == nullptr) return;
            A const* const more = d_before + own.row(row.index(), rows) * width;
            row.each(width, [&](int i) { run[i] += more[i]; });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(retreat)

/// d_log_decay = exp(log decay) <before, d_state>: a stretch's decay stands between the state before it and all that
/// comes of the one that it leaves.
template <class A, class Exec>
void decay_gradient(Exec const& exec, std::size_t all_rows, std::size_t all_width, A const* before, A const* log_decay,
                    A const* d_state, A* d_log_decay) {
    int const width = static_cast<int>(all_width);
    kernels::for_each_row(
        "pentad::decay_gradient", exec, all_rows, all_width, KOKKOS_LAMBDA(kernels::Row<Exec> const& row) {
            i64 const at = row.index() * width;
            A const sum = row.template sum<A>(width, [&](int i) { return before[at + i] * d_state[at + i]; });
            row.once([&] { d_log_decay[row.index()] = sum * Kokkos::exp(log_decay[row.index()]); });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(decay_gradient)

} // namespace pentad::context::detail
