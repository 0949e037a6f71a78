// The chunked scan on a device, backward: the states at the chunks' starts and the gradients of those at their ends,
// then the gradients of what is scanned.
#pragma once

#include <pentad/kernels/detail/chunk_scan_device_gradients.hpp>
#include <pentad/kernels/detail/chunk_scan_device_states.hpp>
#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/rows.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::kernels::detail {

inline std::size_t device_backward_workspace(ScanSizes const& sizes) {
    return 4 * device_tokens(sizes) + 2 * device_states(sizes);
}

/// The gradient of the log decays, as store_decay_gradient makes it on the host.
template <class Exec, class Acc>
void scan_backward_da_device(Exec const& exec, Heads<Acc> const& da, DeviceScan<Acc> const& scan) {
    auto const sizes = scan.cumulative.sizes;
    int const size = static_cast<int>(sizes.state * sizes.head_dim);
    for_each_row(
        "pentad::chunk_scan_backward_da", exec, static_cast<std::size_t>(sizes.batch * sizes.heads * sizes.chunks()),
        static_cast<std::size_t>(size), KOKKOS_LAMBDA(Row<Exec> const& row) {
            auto const at = chunk_place(sizes, row.index());
            Acc const* const before = scan.states.at(at.index, at.chunk);
            Acc const* const behind = scan.gradients.at(at.index, at.chunk);
            Acc const across = row.template sum<Acc>(size, [&](int i) { return before[i] * behind[i]; });
            row.once([&] {
                i64 const first = at.index * sizes.seq + at.start;
                auto const decay = scan.cumulative.of_chunk(at.index, at.chunk);
                int const length = sizes.length(at.chunk);
                Acc passing = across * decay.whole(), after = 0;
                for (int token = 0; token < length; passing += scan.of_states[first + token++])
                    *da.row(at.batch, at.start + token, at.head) = passing;
                for (int token = length - 1; token >= 0; --token) {
                    Acc& to = *da.row(at.batch, at.start + token, at.head);
                    to += after += scan.of_rows[first + token] - scan.of_columns[first + token];
                    if (decay.documents.is_first(token)) to = after = 0;
                }
            });
        });
}

template <class Exec, class T>
void scan_backward_device(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                          accumulator_t<T>* workspace) {
    using Acc = accumulator_t<T>;
    DeviceScan<Acc> const scan(problem.sizes, problem.positions, workspace);
    sum_decays_device(exec, problem.decay, scan.cumulative);
    add_to_states_device(exec, problem.k, problem.v, true, scan.cumulative, scan.states);
    pass_states_device<Exec, Acc>(exec, true, scan.cumulative, scan.states, gradient.initial, nullptr);
    add_to_states_device(exec, problem.q, gradient.dy, false, scan.cumulative, scan.gradients);
    pass_states_device(exec, false, scan.cumulative, scan.gradients, gradient.d_final, gradient.d_initial);
    scan_backward_dq_device(exec, problem, gradient, scan);
    scan_backward_dk_dv_device(exec, problem, gradient, scan);
    if (gradient.da.data != nullptr) scan_backward_da_device(exec, gradient.da, scan);
}

template <class Exec, class T>
void scan_initial_gradient_device(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                                  accumulator_t<T>* workspace) {
    using Acc = accumulator_t<T>;
    auto const& sizes = problem.sizes;
    CumulativeDecay<Acc> const cumulative{workspace, sizes, problem.positions};
    ScanStates<Acc> const states{workspace + device_tokens(sizes), sizes.chunks(), sizes.state * sizes.head_dim};
    sum_decays_device(exec, problem.decay, cumulative);
    add_to_states_device(exec, problem.q, gradient.dy, false, cumulative, states);
    pass_states_device<Exec, Acc>(exec, false, cumulative, states, nullptr, gradient.d_initial);
}

} // namespace pentad::kernels::detail
