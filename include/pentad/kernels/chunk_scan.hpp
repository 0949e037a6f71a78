// The chunked scan that linear attention (LASP: Sun et al. 2024, arXiv 2404.02882; RetNet; Lightning attention) and
// Mamba-2 (SSD: Dao and Gu 2024, arXiv 2405.21060, section 6) share: quadratic within chunks of a sequence, as
// attention without softmax, and across them by states.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/detail/chunk_scan_device_backward.hpp>
#include <pentad/kernels/detail/chunk_scan_device_forward.hpp>
#include <pentad/kernels/detail/chunk_scan_host_backward.hpp>
#include <pentad/kernels/detail/chunk_scan_host_forward.hpp>
#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/chunk_scan_views.hpp>
#include <pentad/kernels/detail/heads.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/observe/host_work.hpp>

#include <cstddef>

namespace pentad::kernels {

// For each head, with a state h [state, head_dim]:
//
//     h_t = exp(a_t) h_{t-1} + k_t v_t^T,    y_t = h_t^T q_t
//
// in each document by itself: before its first token the state is zero.
//
// Shapes, throughout: q, k, dq, dk are [batch, seq, groups, state]; v, y, dy, dv are [batch, seq, heads, head_dim];
// they may be any Views of rank 4 whose last dimension is contiguous, slices of a fused buffer say. Head h uses q and k
// of group h / (heads / groups). The log decay a, finite and not positive, and da are [batch, seq, heads] with any
// strides. States are [batch, heads, state, head_dim], contiguous. a, states and all gradients are in accumulator_t<T>
// (f32 for bf16 and f32). `positions` [batch, seq] are those of the tokens in their documents: that of token t began at
// t - positions[t]. Where this is negative it began before these tokens, and what comes from the initial state counts.
// The decay of a document's first token does nothing, and its gradient is zero.
// What is not given, or not wanted, is a View without memory: a (no decay), the states, da, positions (all of one
// document, which began before).
// `chunk` is how many tokens a chunk has; the last one of a sequence may have fewer.
// The workspace is uninitialised, of accumulators, with as many as chunk_scan_workspace() or
// chunk_scan_backward_workspace() say. Nothing is allocated, nothing fenced; every sum has a fixed order.

namespace detail {

/// States of `boundaries` boundaries of each sequence in the workspace of a host.
template <class T>
i64 host_states(ScanSizes const& sizes, i64 boundaries) {
    return sizes.batch * sizes.heads * boundaries * padded_state<operand_t<T>>(sizes);
}

template <class T, class Exec>
void scan_forward(Exec const& exec, ScanProblem<T> const& problem, ScanResult<T> const& result,
                  accumulator_t<T>* workspace) {
    using Acc = accumulator_t<T>;
    if (problem.sizes.batch * problem.sizes.heads == 0) return;
    if constexpr (runs_on_host<Exec>) {
        observe::HostWork const work("scan");
        using In = operand_t<T>;
        scan_forward_host<In>(exec, problem, result, ScanStates<Acc>{workspace, 1, padded_state<In>(problem.sizes)});
    } else
        scan_forward_device(exec, problem, result, workspace);
}
PENTAD_KERNEL(scan_forward)
template <class T, class Exec>
void scan_initial_gradient(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                           accumulator_t<T>* workspace) {
    if (problem.sizes.batch * problem.sizes.heads == 0) return;
    if constexpr (runs_on_host<Exec>) {
        observe::HostWork const work("scan");
        scan_initial_gradient_host<operand_t<T>>(exec, problem, gradient, workspace);
    } else
        scan_initial_gradient_device(exec, problem, gradient, workspace);
}
PENTAD_KERNEL(scan_initial_gradient)
template <class T, class Exec>
void scan_backward(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                   accumulator_t<T>* workspace) {
    if (problem.sizes.batch * problem.sizes.heads == 0) return;
    if constexpr (runs_on_host<Exec>) {
        observe::HostWork const work("scan");
        scan_backward_host<operand_t<T>>(exec, problem, gradient, workspace, scans_back_by_chunk(exec, problem.sizes));
    } else
        scan_backward_device(exec, problem, gradient, workspace);
}
PENTAD_KERNEL(scan_backward)

} // namespace detail

/// Accumulators in the workspace of a scan over elements T, of its state alone and of the gradient of its initial state
/// alone.
template <class T, class Exec>
std::size_t chunk_scan_workspace(Exec const&, ScanSizes const& sizes) {
    if constexpr (runs_on_host<Exec>)
        return static_cast<std::size_t>(detail::host_states<T>(detail::checked(sizes), 1));
    else
        return detail::device_forward_workspace(detail::checked(sizes));
}
PENTAD_KERNEL(chunk_scan_workspace)
/// The elements in the workspace of a backward pass: the states at the boundaries between chunks and, unless there are
/// enough groups for all threads, their gradients.
template <class T, class Exec>
std::size_t chunk_scan_backward_workspace(Exec const& exec, ScanSizes const& of) {
    auto const sizes = detail::checked(of);
    if constexpr (runs_on_host<Exec>) {
        i64 const gradients = detail::scans_back_by_chunk(exec, sizes) ? sizes.chunks() : 1;
        return static_cast<std::size_t>(detail::host_states<T>(sizes, sizes.chunks() + gradients));
    } else {
        return detail::device_backward_workspace(sizes);
    }
}
PENTAD_KERNEL(chunk_scan_backward_workspace)

/// The outputs y, and the state behind the last token.
/// @param initial the state before the first token; not given: zero. It may be the same memory as `final_state`.
template <class Exec, class Q, class K, class V, class A, class Initial, class Y, class Final, class Workspace>
void chunk_scan_forward(Exec const& exec, Q const& q, K const& k, V const& v, A const& a, Initial const& initial,
                        i64 chunk, Y const& y, Final const& final_state, Workspace const& workspace,
                        In<i32, 2, Exec> positions = {}) {
    using T = typename Y::value_type;
    using Acc = accumulator_t<T>;
    auto const sizes = detail::scan_sizes(q, v, chunk);
    auto const problem = detail::scan_problem<T>(sizes, q, k, v, a, positions);
    auto const extents = detail::state_extents(sizes);
    detail::ScanResult<T> const result{detail::of_states<Acc>("the initial state", initial, extents),
                                       detail::of_heads("y", y, sizes),
                                       detail::of_states<Acc>("the final state", final_state, extents), nullptr};
    Acc* const memory = detail::checked_workspace<Acc>(workspace, chunk_scan_workspace<T>(exec, sizes));
    if (detail::dry_scan("scan_forward", detail::ScanFlops(sizes).forward(), q, k, v, a, initial, y, final_state,
                         positions))
        return;
    detail::scan_forward<T>(exec, problem, result, memory);
}

/// Only the state that the tokens leave from zero, and their total log decay [batch, heads]: what the ranks of a
/// sequence that is sharded exchange before they make outputs (context/carry.hpp). Where a document begins among the
/// tokens the total is -infinity, also without a decay, when it is otherwise 0.
template <class Exec, class K, class V, class A, class Final, class Total, class Workspace>
void chunk_scan_state(Exec const& exec, K const& k, V const& v, A const& a, i64 chunk, Final const& final_state,
                      Total const& total_decay, Workspace const& workspace, In<i32, 2, Exec> positions = {}) {
    using T = typename K::non_const_value_type;
    using Acc = accumulator_t<T>;
    auto const sizes = detail::scan_sizes(k, v, chunk);
    detail::ScanProblem<T> const problem{sizes,
                                         {},
                                         detail::constant<T>(detail::of_groups("k", k, sizes)),
                                         detail::constant<T>(detail::of_heads("v", v, sizes)),
                                         detail::constant<Acc>(detail::of_tokens<Acc>("the log decay", a, sizes)),
                                         detail::of_documents(positions, sizes)};
    detail::ScanResult<T> const result{
        nullptr,
        {},
        detail::of_states<Acc>("the final state", final_state, detail::state_extents(sizes)),
        detail::of_states<Acc>("the total log decay", total_decay, {sizes.batch, sizes.heads})};
    Acc* const memory = detail::checked_workspace<Acc>(workspace, chunk_scan_workspace<T>(exec, sizes));
    if (detail::dry_scan("scan_state", detail::ScanFlops(sizes).states, k, v, a, final_state, total_decay, positions))
        return;
    detail::scan_forward<T>(exec, problem, result, memory);
}

/// Only the gradient of the initial state, of a scan whose final state nobody uses: the adjoint of the states' part, as
/// chunk_scan_state is the part itself.
template <class Exec, class Q, class A, class DY, class Initial, class Workspace>
void chunk_scan_initial_gradient(Exec const& exec, Q const& q, A const& a, DY const& dy, i64 chunk,
                                 Initial const& d_initial, Workspace const& workspace,
                                 In<i32, 2, Exec> positions = {}) {
    using T = typename Q::non_const_value_type;
    using Acc = accumulator_t<T>;
    auto const sizes = detail::scan_sizes(q, dy, chunk);
    detail::ScanProblem<T> const problem{sizes,
                                         detail::constant<T>(detail::of_groups("q", q, sizes)),
                                         {},
                                         {},
                                         detail::constant<Acc>(detail::of_tokens<Acc>("the log decay", a, sizes)),
                                         detail::of_documents(positions, sizes)};
    detail::ScanGradient<T> gradient{};
    gradient.dy = detail::constant<T>(detail::of_heads("dy", dy, sizes));
    gradient.d_initial =
        detail::of_states<Acc>("the initial state's gradient", d_initial, detail::state_extents(sizes));
    Acc* const memory = detail::checked_workspace<Acc>(workspace, chunk_scan_workspace<T>(exec, sizes));
    if (detail::dry_scan("scan_initial_gradient", detail::ScanFlops(sizes).states, q, a, dy, d_initial, positions))
        return;
    detail::scan_initial_gradient<T>(exec, problem, gradient, memory);
}

/// Writes the gradients of all that chunk_scan_forward reads, from that of y and that of the final state. dq and dk are
/// sums over the heads of a group. The states are made again.
/// @param initial as in the forward pass @param d_final the final state's gradient; not given: zero
template <class Exec, class Q, class K, class V, class A, class Initial, class DY, class DFinal, class DQ, class DK,
          class DV, class DA, class DInitial, class Workspace>
void chunk_scan_backward(Exec const& exec, Q const& q, K const& k, V const& v, A const& a, Initial const& initial,
                         DY const& dy, DFinal const& d_final, i64 chunk, DQ const& dq, DK const& dk, DV const& dv,
                         DA const& da, DInitial const& d_initial, Workspace const& workspace,
                         In<i32, 2, Exec> positions = {}) {
    using T = typename Q::non_const_value_type;
    using Acc = accumulator_t<T>;
    auto const sizes = detail::scan_sizes(q, v, chunk);
    auto const extents = detail::state_extents(sizes);
    auto const problem = detail::scan_problem<T>(sizes, q, k, v, a, positions);
    detail::ScanGradient<T> const gradient{detail::constant<T>(detail::of_heads("dy", dy, sizes)),
                                           detail::of_states<Acc>("the initial state", initial, extents),
                                           detail::of_states<Acc>("the final state's gradient", d_final, extents),
                                           detail::of_states<Acc>("the initial state's gradient", d_initial, extents),
                                           detail::of_groups("dq", dq, sizes),
                                           detail::of_groups("dk", dk, sizes),
                                           detail::of_heads("dv", dv, sizes),
                                           detail::of_tokens<Acc>("the log decay's gradient", da, sizes)};
    Acc* const memory = detail::checked_workspace<Acc>(workspace, chunk_scan_backward_workspace<T>(exec, sizes));
    if (detail::dry_scan("scan_backward", detail::ScanFlops(sizes).backward(), q, k, v, a, initial, dy, d_final, dq, dk,
                         dv, da, d_initial, positions))
        return;
    detail::scan_backward<T>(exec, problem, gradient, memory);
}

} // namespace pentad::kernels
