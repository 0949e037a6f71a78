// Sums (maxima, minima, log-sum-exps) of several arrays, element by element in the order in which they are given,
// in accumulators, rounded once at the end: what ranks of a node do with each other's memory.
#pragma once

#include <pentad/comm/detail/datatype.hpp>
#include <pentad/comm/node/copy.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/layout/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace pentad::comm::node {

/// Arrays of one element type by their addresses.
using Addresses = std::byte* const*;
/// Each of out[0..outs) becomes the reduction of in[0..ins), all of `bytes` bytes. An output may be an input. Outputs
/// that go past the caches are stored as `stream` does.
using Reduction = void (*)(Addresses in, std::size_t ins, Addresses out, std::size_t outs, std::size_t bytes,
                           bool past_caches);

namespace detail {

/// Sums are made in registers, a block at a time: the trip counts are known, so that compilers vectorise the loops.
template <class T, Placement How, std::size_t Elements, bool PastCaches>
void reduce_block(Addresses in, std::size_t ins, Addresses out, std::size_t outs, std::size_t first) {
    using A = std::conditional_t<std::is_arithmetic_v<T>, T, accumulator_t<T>>;
    auto const at = [first](std::byte* address) { return reinterpret_cast<T*>(address) + first; };
    A sum[Elements];
    if constexpr (Elements > 1)
        for (std::size_t i = 0; i < ins; ++i)
            for (std::size_t line = 0; line < Elements * sizeof(T); line += 64)
                ask_ahead(reinterpret_cast<std::byte const*>(at(in[i])) + line);
    T const* const x = at(in[0]);
    for (std::size_t j = 0; j < Elements; ++j) sum[j] = static_cast<A>(x[j]);
    for (std::size_t i = 1; i < ins; ++i) {
        T const* const y = at(in[i]);
        for (std::size_t j = 0; j < Elements; ++j) {
            A const a = static_cast<A>(y[j]);
            if constexpr (How == Placement::partial) sum[j] = static_cast<A>(sum[j] + a);
            if constexpr (How == Placement::partial_max) sum[j] = sum[j] < a ? a : sum[j];
            if constexpr (How == Placement::partial_min) sum[j] = a < sum[j] ? a : sum[j];
            if constexpr (How == Placement::partial_log_sum_exp) sum[j] = comm::detail::log_sum_exp(sum[j], a);
        }
    }
    for (std::size_t o = 0; o < outs; ++o) {
        T* const y = at(out[o]);
        if constexpr (PastCaches) {
            alignas(64) T rounded[Elements];
            for (std::size_t j = 0; j < Elements; ++j) rounded[j] = static_cast<T>(sum[j]);
            for (std::size_t line = 0; line < sizeof rounded; line += 64)
                stream_line(reinterpret_cast<std::byte*>(y) + line, reinterpret_cast<std::byte const*>(rounded) + line);
        } else
            for (std::size_t j = 0; j < Elements; ++j) y[j] = static_cast<T>(sum[j]);
    }
}

template <class T, Placement How>
void reduce(Addresses in, std::size_t ins, Addresses out, std::size_t outs, std::size_t bytes, bool past_caches) {
    constexpr std::size_t block = std::max<std::size_t>(64, 256 / sizeof(T));
    std::size_t const count = bytes / sizeof(T), before = before_next_line(out[0]);
    past_caches = past_caches && before % sizeof(T) == 0;
    for (std::size_t o = 1; o < outs; ++o) past_caches = past_caches && before_next_line(out[o]) == before;
    std::size_t i = 0;
    if (past_caches) {
        for (; i < std::min(count, before / sizeof(T)); ++i) reduce_block<T, How, 1, false>(in, ins, out, outs, i);
        for (; i + block <= count; i += block) reduce_block<T, How, block, true>(in, ins, out, outs, i);
    }
    for (; i + block <= count; i += block) reduce_block<T, How, block, false>(in, ins, out, outs, i);
    for (; i < count; ++i) reduce_block<T, How, 1, false>(in, ins, out, outs, i);
}

} // namespace detail

/// The reduction of elements T that the placement asks for.
/// @throws Error where the elements cannot be reduced so
template <class T>
Reduction reduction(Placement placement) {
    return comm::detail::with_reduction<T>(
        placement,
        []<Placement How>(std::integral_constant<Placement, How>) -> Reduction { return &detail::reduce<T, How>; });
}

} // namespace pentad::comm::node

#if PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/node/reduction.hpp>
#endif
