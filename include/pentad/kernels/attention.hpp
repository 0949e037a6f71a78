// Scaled dot-product attention, tiled, with an online softmax: never a seq x seq matrix. It works on
// blocks of queries and keys, so that ring attention can feed it one block of keys after the other, and its backward
// pass likewise; attention over one block is the same thing in one call.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/detail/attention_device_backward.hpp>
#include <pentad/kernels/detail/attention_device_forward.hpp>
#include <pentad/kernels/detail/attention_host_backward.hpp>
#include <pentad/kernels/detail/attention_host_forward.hpp>
#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/detail/attention_rows.hpp>
#include <pentad/kernels/detail/attention_scores.hpp>
#include <pentad/kernels/detail/heads.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/observe/host_work.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace pentad::kernels {

// Shapes, throughout: q and dq are [batch, seq_q, heads, head_dim]; k and dk [batch, seq_k, kv_heads, head_dim]; v and
// dv [batch, seq_k, kv_heads, value_dim]; o and d_o [batch, seq_q, heads, value_dim]; lse and delta [batch, heads,
// seq_q]. value_dim may be any width (in most models head_dim). They may be any Views whose last dimension is
// contiguous: slices of one fused [batch, seq, heads + 2 kv_heads, head_dim] buffer, say, or parts of a sequence. Query
// head h uses kv head h / (heads / kv_heads). lse, delta, the running state, dq, dk and dv are in accumulator_t<T> (f32
// for bf16 and f32). Nothing is allocated, nothing fenced; every sum has a fixed order.

/// The result over the blocks of keys seen so far: per query the largest score, the sum of exp(score - max), and
/// sum exp(score - max) v.
template <class Rows, class Output>
struct AttentionState {
    Rows max;      ///< [batch, heads, seq_q]
    Rows sum;      ///< [batch, heads, seq_q]
    Output output; ///< [batch, seq_q, heads, value_dim]
};

namespace detail {

template <class View>
void check_extents(char const* name, View const& view, std::array<i64, View::rank()> const& expected) {
    check_extents("attention", name, view, expected);
}
template <class View>
auto heads_of(char const* name, View const& view) {
    return heads_of("attention", name, view);
}

template <class View>
auto query_rows(char const* name, View const& view, AttentionSizes const& sizes) {
    static_assert(View::rank() == 3, "attention takes lse, delta and the running max and sum as Views of rank 3");
    check_extents(name, view, {sizes.batch, sizes.heads, sizes.seq_q});
    if (view.extent(2) > 1 && view.stride(2) != 1)
        throw std::invalid_argument(std::string("attention: the queries of ") + name + extents_text(view) +
                                    " have stride " + std::to_string(view.stride(2)) + "; they must be contiguous");
    return QueryRows<typename View::value_type>{view.data(), static_cast<i64>(view.stride(0)),
                                                static_cast<i64>(view.stride(1))};
}
template <class T, class Acc>
QueryRows<T const> constant(QueryRows<Acc> const& rows) {
    return {rows.data, rows.batch_stride, rows.head_stride};
}

template <class Q, class K, class V>
auto attention_problem(Q const& q, K const& k, V const& v, AttentionScores const& scores, AttentionMask const& mask) {
    using T = typename Q::non_const_value_type;
    static_assert(std::is_same_v<T, typename K::non_const_value_type> &&
                      std::is_same_v<T, typename V::non_const_value_type>,
                  "attention needs q, k and v of the same element type");
    auto const extent = [](auto const& view, int d) { return static_cast<i64>(view.extent(d)); };
    AttentionSizes const sizes{extent(q, 0), extent(q, 1), extent(k, 1), extent(q, 2),
                               extent(k, 2), extent(q, 3), extent(v, 3)};
    check_extents("k", k, {sizes.batch, sizes.seq_k, sizes.kv_heads, sizes.head_dim});
    check_extents("v", v, {sizes.batch, sizes.seq_k, sizes.kv_heads, sizes.value_dim});
    if (sizes.kv_heads == 0 || sizes.heads % sizes.kv_heads != 0)
        throw std::invalid_argument("attention: " + std::to_string(sizes.heads) +
                                    " query heads are not a multiple of " + std::to_string(sizes.kv_heads) +
                                    " kv heads");
    if (!(scores.scale > 0))
        throw std::invalid_argument("attention: the scale is " + std::to_string(scores.scale) +
                                    "; it must be positive");
    return AttentionProblem<T>{
        sizes, constant<T>(heads_of("q", q)), constant<T>(heads_of("k", k)), constant<T>(heads_of("v", v)), scores,
        mask};
}

template <class T, class Rows, class Output>
MergeState<T> merge_state(AttentionState<Rows, Output> const& state, AttentionSizes const& sizes) {
    static_assert(std::is_same_v<typename Rows::value_type, accumulator_t<T>> &&
                      std::is_same_v<typename Output::value_type, accumulator_t<T>>,
                  "the state of attention is in accumulator_t of the elements of q and o");
    check_extents("the state's output", state.output, {sizes.batch, sizes.seq_q, sizes.heads, sizes.value_dim});
    return {query_rows("the state's max", state.max, sizes), query_rows("the state's sum", state.sum, sizes),
            heads_of("the state's output", state.output)};
}

template <class View>
typename View::const_value_type* sinks_of(View const& sinks, AttentionSizes const& sizes) {
    if (sinks.size() == 0) return nullptr;
    check_extents("the sinks", sinks, {sizes.heads});
    return sinks.data();
}
/// The sizes that an output, [batch, seq_q, heads, value_dim], alone tells.
template <class View>
AttentionSizes output_sizes(View const& view) {
    auto const extent = [&](int d) { return static_cast<i64>(view.extent(d)); };
    return {extent(0), extent(1), 0, extent(2), 1, 0, extent(3)};
}

/// Pairs of a query and a key that it sees, of one head of a sequence of one document.
inline double visible_pairs(AttentionMask const& mask, AttentionSizes const& sizes) {
    double const queries = static_cast<double>(sizes.seq_q), keys = static_cast<double>(sizes.seq_k);
    // Keys of the block no further than `distance` after each query, of all of them.
    auto const up_to = [&](i64 distance) {
        auto const sum = [keys](double last) { // of 1, 2, ..., last, none larger than keys
            double const rising = std::clamp(last, 0.0, keys);
            return rising * (rising + 1) / 2 + std::max(last - keys, 0.0) * keys;
        };
        double const first = static_cast<double>(mask.query_start + distance - mask.key_start + 1);
        return sum(first + queries - 1) - sum(first - 1);
    };
    double const before = mask.window > 0 ? up_to(-mask.window) : 0;
    if (mask.causal) return up_to(0) - before;
    return (mask.window > 0 ? up_to(mask.window - 1) : queries * keys) - before;
}
/// True in a dry run, which records attention of so many products of queries' or keys' width and of values' width a
/// pair, over memory that holds these views.
template <class... Views>
bool dry_attention(char const* name, AttentionMask const& mask, AttentionSizes const& sizes, double of_heads,
                   double of_values, Views const&... views) {
    auto* const run = observe::dry_run();
    if (run == nullptr) return false;
    double const bytes = (0.0 + ... + static_cast<double>(views.size() * sizeof(typename Views::value_type)));
    run->attention(
        name,
        2 * visible_pairs(mask, sizes) * static_cast<double>(sizes.batch * sizes.heads) *
            (of_heads * static_cast<double>(sizes.head_dim) + of_values * static_cast<double>(sizes.value_dim)),
        bytes);
    return true;
}

template <class Exec, class T, class End>
void attention_forward_end(Exec const& exec, AttentionProblem<T> const& problem, End const& end) {
    if (problem.sizes.batch * problem.sizes.heads * problem.sizes.seq_q == 0) return;
    if constexpr (runs_on_host<Exec>) {
        observe::HostWork const work("attention");
        attention_forward_host<operand_t<T>>(exec, problem, end);
    } else
        attention_forward_device(exec, problem, end);
}
template <class T, class Exec>
void attention_write(Exec const& exec, AttentionProblem<T> const& problem, WriteResult<T> const& result) {
    attention_forward_end(exec, problem, result);
}
PENTAD_KERNEL(attention_write)
template <class T, class Exec>
void attention_merge(Exec const& exec, AttentionProblem<T> const& problem, MergeState<T> const& state) {
    attention_forward_end(exec, problem, state);
}
PENTAD_KERNEL(attention_merge)
template <class T, class Exec>
void attention_backward(Exec const& exec, AttentionProblem<T> const& problem, AttentionGradient<T> const& gradient) {
    if constexpr (runs_on_host<Exec>) {
        observe::HostWork const work("attention");
        attention_backward_host<operand_t<T>>(exec, problem, gradient);
    } else
        attention_backward_device(exec, problem, gradient);
}
PENTAD_KERNEL(attention_backward)

} // namespace detail

/// o = softmax(scores of q k^T, masked) v and lse = log sum exp of the scores, over one block of keys that is all there
/// is. A query that sees no key gets o = 0 and lse = -infinity.
/// @param sinks [heads], of a score more in each softmax, of a key whose value is 0 (Xiao et al. 2024, "Efficient
/// streaming language models with attention sinks", section 3.3, where it is 0; learned in gpt-oss, OpenAI 2025);
/// empty: none
template <class Exec, class Q, class K, class V, class O, class Lse>
void attention_forward(Exec const& exec, Q const& q, K const& k, V const& v, AttentionScores const& scores,
                       AttentionMask const& mask, O const& o, Lse const& lse,
                       In<typename O::value_type, 1, Exec> const& sinks = {}) {
    auto const problem = detail::attention_problem(q, k, v, scores, mask);
    auto const& sizes = problem.sizes;
    using T = typename O::value_type;
    detail::check_extents("o", o, {sizes.batch, sizes.seq_q, sizes.heads, sizes.value_dim});
    if (detail::dry_attention("attention_forward", mask, sizes, 1, 1, q, k, v, o, lse)) return;
    detail::attention_write<T>(exec, problem,
                               detail::WriteResult<T>{detail::heads_of("o", o), detail::query_rows("lse", lse, sizes),
                                                      detail::sinks_of(sinks, sizes)});
}

/// The state before any key: max = -infinity, sum = 0, output = 0.
template <class Exec, class Rows, class Output>
void attention_start(Exec const& exec, AttentionState<Rows, Output> const& state) {
    auto const sizes = detail::output_sizes(state.output);
    if (dry("attention_start", state.max, state.sum, state.output)) return;
    detail::start_queries(exec, sizes, detail::merge_state<typename Output::value_type>(state, sizes));
}

/// Merges one block of keys into the state. Blocks may come in any order; a query that sees none of the block's keys
/// keeps its state, and tiles that no query sees cost nothing.
template <class Exec, class Q, class K, class V, class Rows, class Output>
void attention_accumulate(Exec const& exec, Q const& q, K const& k, V const& v, AttentionScores const& scores,
                          AttentionMask const& mask, AttentionState<Rows, Output> const& state) {
    auto const problem = detail::attention_problem(q, k, v, scores, mask);
    using T = typename Q::non_const_value_type;
    if (detail::dry_attention("attention_accumulate", mask, problem.sizes, 1, 1, q, k, v, state.output, state.output))
        return;
    detail::attention_merge<T>(exec, problem, detail::merge_state<T>(state, problem.sizes));
}

/// Takes the state from the largest scores that it has seen to those of all states that are merged: output and sum are
/// those of these, whose sums are then the merged state. max stays.
/// @param largest [batch, heads, seq], at least max
template <class Exec, class Rows, class Output, class Largest>
void attention_rescale(Exec const& exec, AttentionState<Rows, Output> const& state, Largest const& largest) {
    using A = typename Output::value_type;
    auto const sizes = detail::output_sizes(state.output);
    if (dry("attention_rescale", state.max, state.sum, state.output, largest)) return;
    detail::rescale_queries<A>(exec, sizes, detail::merge_state<A>(state, sizes),
                               detail::constant<A>(detail::query_rows("largest", largest, sizes)));
}

/// o = output / sum and lse = max + log sum. A query that saw no key gets o = 0 and lse = -infinity.
/// @param sinks as attention_forward() takes them
template <class Exec, class Rows, class Output, class O, class Lse>
void attention_finish(Exec const& exec, AttentionState<Rows, Output> const& state, O const& o, Lse const& lse,
                      In<typename O::value_type, 1, Exec> const& sinks = {}) {
    using T = typename O::value_type;
    auto const sizes = detail::output_sizes(state.output);
    detail::check_extents("o", o, {sizes.batch, sizes.seq_q, sizes.heads, sizes.value_dim});
    if (dry("attention_finish", state.max, state.sum, state.output, o, lse)) return;
    detail::finish_queries(exec, sizes, detail::merge_state<T>(state, sizes),
                           detail::WriteResult<T>{detail::heads_of("o", o), detail::query_rows("lse", lse, sizes),
                                                  detail::sinks_of(sinks, sizes)});
}

/// delta = sum over value_dim of o * d_o: what every block of the backward pass needs of the forward result.
template <class Exec, class O, class DO, class Delta>
void attention_backward_start(Exec const& exec, O const& o, DO const& d_o, Delta const& delta) {
    using T = typename O::non_const_value_type;
    static_assert(std::is_same_v<T, typename DO::non_const_value_type>, "o and d_o differ in their element type");
    auto const sizes = detail::output_sizes(o);
    detail::check_extents("d_o", d_o, {sizes.batch, sizes.seq_q, sizes.heads, sizes.value_dim});
    if (dry("attention_backward_start", o, d_o, delta)) return;
    detail::sum_queries(exec, sizes, detail::constant<T>(detail::heads_of("o", o)),
                        detail::constant<T>(detail::heads_of("d_o", d_o)), detail::query_rows("delta", delta, sizes));
}

/// Adds to d_sinks, [heads], the gradient of the sinks, of an output that they were part of. lse and delta are those of
/// the whole attention.
template <class T, class Exec, class Lse, class Delta>
void attention_sinks_backward(Exec const& exec, In<T, 1, Exec> const& sinks, Lse const& lse, Delta const& delta,
                              Out<accumulator_t<T>, 1, Exec> const& d_sinks) {
    using Acc = accumulator_t<T>;
    auto const extent = [&](int d) { return static_cast<i64>(lse.extent(d)); };
    detail::AttentionSizes const sizes{extent(0), extent(2), 0, extent(1), 1, 0, 0};
    detail::check_extents("d_sinks", d_sinks, {sizes.heads});
    if (dry("attention_sinks_backward", sinks, lse, delta, d_sinks)) return;
    detail::sum_sinks<T>(exec, sizes, detail::sinks_of(sinks, sizes),
                         detail::constant<Acc>(detail::query_rows("lse", lse, sizes)),
                         detail::constant<Acc>(detail::query_rows("delta", delta, sizes)), d_sinks.data());
}

/// Adds to dq, dk and dv what one block of keys contributes. lse and delta are those of the whole attention, over all
/// blocks; blocks may come in any order.
template <class Exec, class Q, class K, class V, class DO, class Lse, class Delta, class DQ, class DK, class DV>
void attention_backward_accumulate(Exec const& exec, Q const& q, K const& k, V const& v, DO const& d_o, Lse const& lse,
                                   Delta const& delta, AttentionScores const& scores, AttentionMask const& mask,
                                   DQ const& dq, DK const& dk, DV const& dv) {
    using T = typename Q::non_const_value_type;
    using Acc = accumulator_t<T>;
    static_assert(std::is_same_v<T, typename DO::non_const_value_type>, "q and d_o differ in their element type");
    static_assert(std::is_same_v<Acc, typename DQ::value_type> && std::is_same_v<Acc, typename DK::value_type> &&
                      std::is_same_v<Acc, typename DV::value_type>,
                  "attention adds to dq, dk and dv in accumulator_t of q's elements");
    auto const problem = detail::attention_problem(q, k, v, scores, mask);
    auto const& sizes = problem.sizes;
    detail::check_extents("d_o", d_o, {sizes.batch, sizes.seq_q, sizes.heads, sizes.value_dim});
    detail::check_extents("dq", dq, {sizes.batch, sizes.seq_q, sizes.heads, sizes.head_dim});
    detail::check_extents("dk", dk, {sizes.batch, sizes.seq_k, sizes.kv_heads, sizes.head_dim});
    detail::check_extents("dv", dv, {sizes.batch, sizes.seq_k, sizes.kv_heads, sizes.value_dim});
    detail::AttentionGradient<T> const gradient{detail::constant<T>(detail::heads_of("d_o", d_o)),
                                                detail::constant<Acc>(detail::query_rows("lse", lse, sizes)),
                                                detail::constant<Acc>(detail::query_rows("delta", delta, sizes)),
                                                detail::heads_of("dq", dq),
                                                detail::heads_of("dk", dk),
                                                detail::heads_of("dv", dv)};
    if (sizes.batch * sizes.heads * sizes.seq_q * sizes.seq_k == 0) return;
    // 5 products: the scores again, those of dq and dk; and those of dp and dv.
    if (detail::dry_attention("attention_backward", mask, sizes, 3, 2, q, k, v, d_o, lse, delta, dq, dq, dk, dk, dv,
                              dv))
        return;
    detail::attention_backward<T>(exec, problem, gradient);
}

} // namespace pentad::kernels
