// Floating-point numbers of 8 bits (Micikevicius et al. 2022, "FP8 formats for deep learning", table 1).
#pragma once

#include <pentad/layout/element.hpp>

#include <bit>
#include <cstdint>
#include <string_view>

namespace pentad {

/// Storage only: arithmetic happens in f32. Rounded to nearest even; what is too large becomes the largest number.
/// @tparam HasInfinity whether the largest exponent is that of infinity and NaN, as in IEEE 754; else only the largest
/// code is NaN, and infinity becomes it
template <int ExponentBits, int MantissaBits, bool HasInfinity>
struct Float8 {
    static_assert(ExponentBits + MantissaBits == 7);
    std::uint8_t bits = 0;

    Float8() = default;
    PENTAD_FUNCTION constexpr Float8(float value) {
        auto const word = std::bit_cast<std::uint32_t>(value), sign = word >> 24 & 0x80u, size = word & 0x7fffffffu;
        std::uint32_t code = 0;
        if (size >= infinity_of_f32) {
            code = HasInfinity && size == infinity_of_f32 ? infinity_ : nan_;
        } else if (size < smallest_normal_) { // to multiples of the smallest number
            constexpr std::uint32_t magic = smallest_normal_ + ((23u - MantissaBits) << 23);
            code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + std::bit_cast<float>(magic)) - magic;
        } else {
            code = ((size + (1u << (shift_ - 1)) - 1 + (size >> shift_ & 1u)) >> shift_) - rebias_;
            if (code > largest_) code = largest_;
        }
        bits = static_cast<std::uint8_t>(sign | code);
    }
    PENTAD_FUNCTION constexpr operator float() const {
        std::uint32_t const sign = (bits & 0x80u) << 24, code = bits & 0x7fu;
        std::uint32_t size = (code + rebias_) << shift_;
        if (code < 1u << MantissaBits) {
            constexpr std::uint32_t smallest = smallest_normal_ - (std::uint32_t{MantissaBits} << 23);
            size = std::bit_cast<std::uint32_t>(static_cast<float>(code) * std::bit_cast<float>(smallest));
        } else if (code > largest_) {
            size = HasInfinity && code == infinity_ ? infinity_of_f32 : infinity_of_f32 | 1u << 22;
        }
        return std::bit_cast<float>(sign | size);
    }

  private:
    static constexpr std::uint32_t infinity_of_f32 = 0x7f800000u;
    static constexpr int bias_ = (1 << (ExponentBits - 1)) - 1;
    static constexpr int shift_ = 23 - MantissaBits;
    static constexpr std::uint32_t rebias_ = static_cast<std::uint32_t>(127 - bias_) << MantissaBits;
    static constexpr std::uint32_t smallest_normal_ = static_cast<std::uint32_t>(128 - bias_) << 23; ///< as an f32
    static constexpr std::uint32_t infinity_ = ((1u << ExponentBits) - 1) << MantissaBits;
    static constexpr std::uint32_t nan_ = 0x7fu;
    static constexpr std::uint32_t largest_ = HasInfinity ? infinity_ - 1 : nan_ - 1;
};

using f8e4m3 = Float8<4, 3, false>; ///< up to 448
using f8e5m2 = Float8<5, 2, true>;  ///< up to 57,344

template <>
struct Element<f8e4m3> {
    static constexpr std::string_view name = "f8e4m3";
    using accumulator = f32;
    static constexpr bool is_commutative = true;
};
template <>
struct Element<f8e5m2> {
    static constexpr std::string_view name = "f8e5m2";
    using accumulator = f32;
    static constexpr bool is_commutative = true;
};

} // namespace pentad
