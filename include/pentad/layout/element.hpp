// What an element is: f64, f32, bf16, integers and whatever else is declared one, their names in the short form, and
// the type in which their sums are accumulated. Usable in device code; includes neither MPI nor Kokkos.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define PENTAD_FUNCTION __host__ __device__ inline
#else
#define PENTAD_FUNCTION inline
#endif

namespace pentad {

using f64 = double;
using f32 = float;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

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

/// What tensors need to know of an element. Users declare their own types, which are trivially copyable:
///
///     template <>
///     struct pentad::Element<Velocity> {
///         static constexpr std::string_view name = "velocity"; // in layouts and messages
///         using accumulator = Velocity;                        // in which sums are made
///         static constexpr bool is_commutative = true;         // a + b is b + a: ranks may be summed in any order
///     };
///
/// For Partial layouts the accumulator has operator+, a default constructor, and conversions from and to the element;
/// for PartialMax and PartialMin the element has operator<. On a GPU these are device functions. All bytes 0 must be
/// the element zero. Their `operator+` may be any associative and commutative operation of which that is the identity:
/// such a partial value is reduced by it. Where it does not commute, or does not say so, there are no partial values:
/// the order in which ranks are summed depends on the network. Complex numbers: memory/complex.hpp; of 8 bits:
/// layout/float8.hpp.
template <class T>
struct Element; // undefined: T is not an element of a tensor

template <>
struct Element<f64> {
    static constexpr std::string_view name = "f64";
    using accumulator = f64;
    static constexpr bool is_commutative = true;
};
template <>
struct Element<f32> {
    static constexpr std::string_view name = "f32";
    using accumulator = f32;
    static constexpr bool is_commutative = true;
};
template <>
struct Element<bf16> {
    static constexpr std::string_view name = "bf16";
    using accumulator = f32;
    static constexpr bool is_commutative = true;
};
template <class T>
    requires std::is_integral_v<T>
struct Element<T> {
    static constexpr std::string_view name = std::is_same_v<T, bool> ? "bool"
                                             : std::is_signed_v<T>
                                                 ? std::array{"i8", "i16", "i32", "i64"}[std::bit_width(sizeof(T)) - 1]
                                                 : std::array{"u8", "u16", "u32", "u64"}[std::bit_width(sizeof(T)) - 1];
    using accumulator = std::conditional_t<std::is_signed_v<T>, i64, u64>;
    static constexpr bool is_commutative = true;
};

/// The type in which sums over T are accumulated: f32 for bf16 and f32, f64 for f64, 64 bits for integers.
template <class T>
using accumulator_t = typename Element<T>::accumulator;

/// Types that are declared elements of tensors.
template <class T>
concept TensorElement = requires {
    { Element<T>::name } -> std::convertible_to<std::string_view>;
    typename Element<T>::accumulator;
};
/// Whether its Element says that the operation of its sums commutes.
template <class T>
inline constexpr bool is_commutative = false;
template <class T>
    requires requires { Element<T>::is_commutative; }
inline constexpr bool is_commutative<T> = Element<T>::is_commutative;

/// Elements that can be added, of which ranks can hold summands, and of which log-sum-exps, and largest and smallest
/// ones have a meaning.
template <class T>
concept Addable = !std::is_same_v<T, bool> && requires(accumulator_t<T> a, T x) {
    { a + static_cast<accumulator_t<T>>(x) } -> std::convertible_to<accumulator_t<T>>;
};
template <class T>
concept Summable = Addable<T> && is_commutative<T>;
template <class T>
concept Real = std::is_floating_point_v<T> || std::is_same_v<T, bf16>;
template <class T>
concept Ordered = requires(T a) {
    { a < a } -> std::convertible_to<bool>;
};

} // namespace pentad
