// 8-bit floats in blocks with a scale: their elements have a sign bit (or none, where values are not negative), an
// exponent and three mantissa bits; all elements of a block are multiplied with 2^scale, as in the microscaling formats
// of OCP (Rouhani et al. 2023). What has been rounded once is rounded to itself.
#pragma once

#include <Kokkos_Core.hpp>

#include <bit>
#include <cstdint>

namespace pentad::kernels::fp8 {

KOKKOS_INLINE_FUNCTION bool is_not_finite(float x) {
    return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) == 0x7f800000u;
}

/// The size of a value as the largest of a block sees it: infinite where it is not finite.
template <class A>
KOKKOS_INLINE_FUNCTION A magnitude(A x) {
    return x - x == A(0) ? Kokkos::abs(x) : Kokkos::Experimental::infinity_v<A>;
}

// The number of an element without its sign, c: c itself below 8, else (8 + c mod 8) 2^(c / 8 - 1).
inline constexpr std::uint32_t base = 129u << 3; ///< of c = 8, as exponent and three mantissa bits of an f32
inline constexpr int scale_bias = 126;
inline constexpr std::uint8_t not_finite_scale = 255;

KOKKOS_INLINE_FUNCTION float value(std::uint32_t c) {
    float const size = std::bit_cast<float>((c + (c < 8 ? 8u : 0u) + base) << 20);
    return c < 8 ? size - 8.0F : size;
}
/// @param add half of the last place (2^19) for nearest, a random number below 2^20 for stochastic rounding
KOKKOS_INLINE_FUNCTION std::uint32_t element(float y, std::uint32_t add) {
    bool const is_small = y < 8.0F;
    std::uint32_t const word = std::bit_cast<std::uint32_t>(is_small ? y + 8.0F : y) + add;
    return (word >> 20) - base - (is_small ? 8u : 0u);
}
/// The least exponent s with which x <= 2^s times the largest element.
KOKKOS_INLINE_FUNCTION int scale(float x, bool is_signed) {
    std::uint32_t const word = std::bit_cast<std::uint32_t>(x);
    int const exponent = static_cast<int>(word >> 23) - 126 + ((word & 0x7fffffu) > 0x700000u ? 1 : 0);
    int const least = exponent - (is_signed ? 18 : 34); // the largest elements: 15 2^14 and 15 2^30
    return least < -scale_bias ? -scale_bias : least;
}
KOKKOS_INLINE_FUNCTION float power_of_two(int exponent) { // -126 <= exponent <= 127
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}
/// A block's scale as it is kept.
KOKKOS_INLINE_FUNCTION std::uint8_t kept_scale(int scale) { return static_cast<std::uint8_t>(scale + scale_bias); }
/// What the elements of a block are multiplied with, by the scale that is kept: NaN where one was not finite.
KOKKOS_INLINE_FUNCTION float factor(std::uint8_t kept) {
    return kept == not_finite_scale ? Kokkos::Experimental::quiet_NaN_v<float>
                                    : power_of_two(static_cast<int>(kept) - scale_bias);
}

} // namespace pentad::kernels::fp8
