// The scalar functions that rows are made of: in f64 the library's, in f32 branch-free polynomials, so
// that loops over them vectorise without -ffast-math (on a device, exp is the device's own).
#pragma once

#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <bit>
#include <cstdint>

namespace pentad::kernels::math {

namespace detail {

/// condition ? a : b in bits. GCC would make a jump of it, and loops with jumps are not vectorised.
KOKKOS_FORCEINLINE_FUNCTION float select(bool condition, float a, float b) {
    std::uint32_t const mask = 0u - static_cast<std::uint32_t>(condition);
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & mask) | (std::bit_cast<std::uint32_t>(b) & ~mask));
}

/// e^x to 2 ulp: x = n ln 2 + r, e^r by a polynomial, 2^n by its bits. Overflows to infinity, keeps NaN, and is 0 where
/// e^x is below 2^-125.5: subnormal arithmetic would be twenty times slower, and softmax has no use for it.
KOKKOS_FORCEINLINE_FUNCTION float exp_polynomial(float x) {
    float const from_below = select(-87.0f > x, -87.0f, x); // n = -126 there, whose 2^(n-1) below is 0
    float const inside = select(89.0f < from_below, 89.0f, from_below);
    constexpr float shift = 12582912.0f; // 1.5 * 2^23: added to a small number, leaves it rounded in the last bits
    int const n = std::bit_cast<int>(inside * 1.44269504f + shift) - std::bit_cast<int>(shift);
    float const whole = static_cast<float>(n);
    float const r = (inside - whole * 0.693359375f) - whole * -2.12194440e-4f; // ln 2 in two parts; the first is exact
    float q = 2.7628935e-3f;
    q = q * r + 1.67375617e-2f;
    q = q * r + 8.33367854e-2f;
    q = q * r + 3.33330393e-1f;
    q = q * r + 9.99999881e-1f;
    float const twice = q * (r * r) + (r + r) + 2.0f; // 2 e^r * 2^(n-1): the power is finite where n is 128, too
    float const power = std::bit_cast<float>(static_cast<std::uint32_t>(n + 126) << 23);
    return twice * power;
}

/// log(1 + z) to 2 ulp, for z in [0, 1]: 2 atanh(s), s = z / (2 + z), by its series.
KOKKOS_FORCEINLINE_FUNCTION float log1p_polynomial(float z) {
    float const s = z / (2.0f + z), square = s * s;
    float series = 1.0f / 15;
    series = series * square + 1.0f / 13;
    series = series * square + 1.0f / 11;
    series = series * square + 1.0f / 9;
    series = series * square + 1.0f / 7;
    series = series * square + 1.0f / 5;
    series = series * square + 1.0f / 3;
    return (s + s) * (series * square) + (s + s);
}

/// The standard normal distribution function and its density, each with a small relative error in both tails:
/// erfc(z) = e^(-z^2) t P(t), t = 1 / (1 + 0.4 z), for z >= 0; P is a fit of relative error 6e-8.
struct Normal {
    float distribution, density;
};
KOKKOS_FORCEINLINE_FUNCTION Normal normal_polynomial(float x) {
    float const size = Kokkos::abs(x);
    float const t = 1.0f / (1.0f + 0.4f * 0.707106781f * size);
    float p = 4.1253477e-2f;
    p = p * t - 1.4032133e-1f;
    p = p * t + 8.3991528e-2f;
    p = p * t + 8.7959610e-2f;
    p = p * t + 7.9759657e-2f;
    p = p * t + 1.9339190e-1f;
    p = p * t + 2.0188791e-1f;
    p = p * t + 2.2644307e-1f;
    p = p * t + 2.2563423e-1f;
    float const bell = exp_polynomial(-0.5f * x * x);
    float const tail = 0.5f * bell * t * p;
    return {select(x < 0.0f, tail, 1.0f - tail), 0.398942280f * bell};
}

} // namespace detail

KOKKOS_FORCEINLINE_FUNCTION double exp(double x) { return Kokkos::exp(x); }
KOKKOS_FORCEINLINE_FUNCTION float exp(float x) {
    KOKKOS_IF_ON_HOST((return detail::exp_polynomial(x);))
    KOKKOS_IF_ON_DEVICE((return Kokkos::exp(x);))
}

template <class A>
KOKKOS_FORCEINLINE_FUNCTION A sigmoid(A x) {
    return A(1) / (A(1) + exp(-x));
}

/// x * sigmoid(x), also called swish.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A silu(A x) {
    return x * sigmoid(x);
}

/// log(1 + e^x), without overflow.
KOKKOS_FORCEINLINE_FUNCTION double softplus(double x) {
    return (x > 0 ? x : 0) + Kokkos::log1p(Kokkos::exp(-Kokkos::abs(x)));
}
KOKKOS_FORCEINLINE_FUNCTION float softplus(float x) {
    return detail::select(x > 0.0f, x, 0.0f) + detail::log1p_polynomial(exp(-Kokkos::abs(x)));
}

/// The square root of what cannot be negative. (GCC vectorises it once it sees that errno cannot be set.)
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A root(A x) {
    return Kokkos::sqrt(Kokkos::abs(x));
}

/// GELU in its exact form, x * Phi(x), which is PyTorch's default (not the tanh approximation).
KOKKOS_FORCEINLINE_FUNCTION double gelu(double x) {
    return x * (0.5 * (1.0 + Kokkos::erf(x * 0.70710678118654752440)));
}
KOKKOS_FORCEINLINE_FUNCTION float gelu(float x) { return x * detail::normal_polynomial(x).distribution; }

/// d gelu / dx = Phi(x) + x phi(x).
KOKKOS_FORCEINLINE_FUNCTION double gelu_derivative(double x) {
    return 0.5 * (1.0 + Kokkos::erf(x * 0.70710678118654752440)) +
           x * 0.39894228040143267794 * Kokkos::exp(-0.5 * x * x);
}
KOKKOS_FORCEINLINE_FUNCTION float gelu_derivative(float x) {
    auto const [distribution, density] = detail::normal_polynomial(x);
    return distribution + x * density;
}

} // namespace pentad::kernels::math
