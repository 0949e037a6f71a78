// The parts of attention that are one short pass over the queries: clearing the running state, the division at its end,
// the sums of o * d_o that the backward pass needs, and those of the sinks.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/rows.hpp>

#include <Kokkos_Core.hpp>

namespace pentad::kernels::detail {

/// One query of one head.
struct QueryPlace {
    i64 batch, query, head;
};

/// Rows are numbered as they lie in memory: [batch, seq_q, heads].
KOKKOS_INLINE_FUNCTION QueryPlace query_place(AttentionSizes const& sizes, i64 row) {
    return {row / sizes.heads / sizes.seq_q, row / sizes.heads % sizes.seq_q, row % sizes.heads};
}

/// f(row, place) for every query of every head.
template <class Exec, class F>
void for_each_query(char const* label, Exec const& exec, AttentionSizes const& sizes, F const& f) {
    for_each_row(
        label, exec, static_cast<std::size_t>(sizes.batch * sizes.seq_q * sizes.heads),
        static_cast<std::size_t>(sizes.value_dim),
        KOKKOS_LAMBDA(Row<Exec> const& row) { f(row, query_place(sizes, row.index())); });
}

template <class T, class Exec>
void start_queries(Exec const& exec, AttentionSizes const& sizes, MergeState<T> const& state) {
    using Acc = accumulator_t<T>;
    int const value_dim = static_cast<int>(sizes.value_dim);
    for_each_query(
        "pentad::attention_start", exec, sizes, KOKKOS_LAMBDA(Row<Exec> const& row, QueryPlace const& at) {
            Acc* const output = state.output.row(at.batch, at.query, at.head);
            row.each(value_dim, [&](int d) { output[d] = Acc(0); });
            row.once([&] {
                state.max.row(at.batch, at.head)[at.query] = -Kokkos::Experimental::infinity_v<Acc>;
                state.sum.row(at.batch, at.head)[at.query] = Acc(0);
            });
        });
}
PENTAD_KERNEL(start_queries)

/// output and sum *= exp(max - largest). Where max is -infinity, there is nothing.
template <class A, class Exec>
void rescale_queries(Exec const& exec, AttentionSizes const& sizes, MergeState<A> const& state,
                     QueryRows<A const> const& largest) {
    int const value_dim = static_cast<int>(sizes.value_dim);
    for_each_query(
        "pentad::attention_rescale", exec, sizes, KOKKOS_LAMBDA(Row<Exec> const& row, QueryPlace const& at) {
            A const max = state.max.row(at.batch, at.head)[at.query];
            A const factor = max == -Kokkos::Experimental::infinity_v<A>
                                 ? A(0)
                                 : Kokkos::exp(max - largest.row(at.batch, at.head)[at.query]);
            A* const output = state.output.row(at.batch, at.query, at.head);
            row.each(value_dim, [&](int d) { output[d] *= factor; });
            row.once([&] { state.sum.row(at.batch, at.head)[at.query] *= factor; });
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(rescale_queries)

template <class T, class Exec>
void finish_queries(Exec const& exec, AttentionSizes const& sizes, MergeState<T> const& state,
                    WriteResult<T> const& result) {
    using Acc = accumulator_t<T>;
    int const value_dim = static_cast<int>(sizes.value_dim);
    for_each_query(
        "pentad::attention_finish", exec, sizes, KOKKOS_LAMBDA(Row<Exec> const& row, QueryPlace const& at) {
            auto const softmax = softmax_end(result, at.head, state.max.row(at.batch, at.head)[at.query],
                                             state.sum.row(at.batch, at.head)[at.query]);
            Acc const* const output = state.output.row(at.batch, at.query, at.head);
            T* const o = result.o.row(at.batch, at.query, at.head);
            row.each(value_dim, [&](int d) { o[d] = T(output[d] * softmax.factor); });
            row.once([&] { result.lse.row(at.batch, at.head)[at.query] = softmax.lse; });
        });
}
PENTAD_KERNEL(finish_queries)

template <class T, class Exec>
void sum_queries(Exec const& exec, AttentionSizes const& sizes, Heads<T const> const& o, Heads<T const> const& d_o,
                 QueryRows<accumulator_t<T>> const& delta) {
    using Acc = accumulator_t<T>;
    int const value_dim = static_cast<int>(sizes.value_dim);
    for_each_query(
        "pentad::attention_backward_start", exec, sizes, KOKKOS_LAMBDA(Row<Exec> const& row, QueryPlace const& at) {
            T const* const a = o.row(at.batch, at.query, at.head);
            T const* const b = d_o.row(at.batch, at.query, at.head);
            Acc const sum = row.template sum<Acc>(value_dim, [&](int d) { return Acc(a[d]) * Acc(b[d]); });
            row.once([&] { delta.row(at.batch, at.head)[at.query] = sum; });
        });
}
PENTAD_KERNEL(sum_queries)

/// d_sinks[h] += the derivative by the logit of the sink of head h, whose probability in each softmax is
/// exp(sink - lse): minus the sum of that times delta over the queries.
template <class T, class Exec>
void sum_sinks(Exec const& exec, AttentionSizes const& sizes, T const* sinks,
               QueryRows<accumulator_t<T> const> const& lse, QueryRows<accumulator_t<T> const> const& delta,
               accumulator_t<T>* d_sinks) {
    using Acc = accumulator_t<T>;
    int const queries = static_cast<int>(sizes.seq_q);
    for_each_row(
        "pentad::attention_sinks", exec, static_cast<std::size_t>(sizes.heads), static_cast<std::size_t>(sizes.seq_q),
        KOKKOS_LAMBDA(Row<Exec> const& row) {
            i64 const head = row.index();
            Acc const sink = Acc(sinks[head]);
            Acc total = Acc(0);
            for (i64 batch = 0; batch < sizes.batch; ++batch) {
                Acc const* const lse_of = lse.row(batch, head);
                Acc const* const delta_of = delta.row(batch, head);
                total +=
                    row.template sum<Acc>(queries, [&](int i) { return Kokkos::exp(sink - lse_of[i]) * delta_of[i]; });
            }
            row.once([&] { d_sinks[head] -= total; });
        });
}
PENTAD_KERNEL(sum_sinks)

} // namespace pentad::kernels::detail
