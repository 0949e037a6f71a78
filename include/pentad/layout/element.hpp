// What an element is: f64, f32, bf16 and integers, their names in the short form,
// and the type in which their sums are accumulated. Usable in device code; includes neither MPI nor Kokkos.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define PENTAD_FUNCTION __host__ __device__ inline
#else
#define PENTAD_FUNCTION inline
#endif

namespace pentad {

using f64 = double;
using f32 = float;
using i32 = std::int32_t;
using i64 = std::int64_t;

/// bfloat16: the upper half of an f32, rounded to nearest even. Storage only: arithmetic happens in f32.
struct bf16 {
    std::uint16_t bits = 0;

    bf16() = default;
    PENTAD_FUNCTION constexpr bf16(float value) {
        auto const word = std::bit_cast<std::uint32_t>(value);
        bool const is_nan = (word & 0x7fffffffu) > 0x7f800000u;
        bits = static_cast<std::uint16_t>(is_nan ? (word >> 16) | 0x40u : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    }
    PENTAD_FUNCTION constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

template <class T>
struct Element; // undefined: T is not an element of a tensor

template <>
struct Element<f64> {
    static constexpr std::string_view name = "f64";
    using accumulator = f64;
};
template <>
struct Element<f32> {
    static constexpr std::string_view name = "f32";
    using accumulator = f32;
};
template <>
struct Element<bf16> {
    static constexpr std::string_view name = "bf16";
    using accumulator = f32;
};
template <>
struct Element<i32> {
    static constexpr std::string_view name = "i32";
    using accumulator = i64;
};
template <>
struct Element<i64> {
    static constexpr std::string_view name = "i64";
    using accumulator = i64;
};

/// The type in which sums over T are accumulated: f32 for bf16 and f32, f64 for f64.
template <class T>
using accumulator_t = typename Element<T>::accumulator;

} // namespace pentad
