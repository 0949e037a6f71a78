#include <pentad/kernels/math.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace math = pentad::kernels::math;

namespace {

/// How many units in the last place of `exact`, rounded to f32, lie between it and `value`.
double ulps(float value, double exact) {
    float const nearest = static_cast<float>(exact);
    if (std::isinf(nearest)) return value == nearest ? 0 : 1e9;
    float const next = std::nextafter(std::abs(nearest), std::numeric_limits<float>::infinity());
    return std::abs(static_cast<double>(value) - exact) /
           (static_cast<double>(next) - std::abs(static_cast<double>(nearest)));
}

} // namespace

TEST_CASE("exp in f32 is within 2 ulp over its whole range, and 0 where it would near the subnormals") {
    double worst = 0;
    float at = 0, least = 1;
    // every 64th float of either sign between 2^-30 and 128
    for (auto bits = std::bit_cast<std::uint32_t>(0x1p-30f); bits < std::bit_cast<std::uint32_t>(128.0f); bits += 64)
        for (float const x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
            float const value = math::exp(x);
            if (value == 0.0f && x < -86.9f) continue;
            least = std::min(least, value);
            double const error = ulps(value, std::exp(static_cast<double>(x)));
            if (!(error <= worst)) worst = error, at = x;
        }
    INFO("worst at " << at);
    CHECK(worst <= 2);
    CHECK(least >= 0x1p-126f);
    CHECK(least <= 0x1p-125f);
}

TEST_CASE("exp in f32 has the right limits") {
    float const infinity = std::numeric_limits<float>::infinity();
    CHECK(math::exp(0.0f) == 1.0f);
    CHECK(math::exp(-0.0f) == 1.0f);
    CHECK(math::exp(infinity) == infinity);
    CHECK(math::exp(-infinity) == 0.0f);
    CHECK(math::exp(88.73f) == infinity);
    CHECK(std::isfinite(math::exp(88.72f)));
    CHECK(math::exp(std::numeric_limits<float>::max()) == infinity);
    CHECK(math::exp(std::numeric_limits<float>::lowest()) == 0.0f);
    CHECK(math::exp(-87.5f) == 0.0f);
    CHECK(std::isnan(math::exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("softplus in f32 is within 4 ulp, and goes to x and to e^x") {
    double worst = 0;
    float at = 0;
    for (int i = -80000; i <= 80000; ++i) {
        float const x = static_cast<float>(i) * 1e-3f;
        double const exact = math::softplus(static_cast<double>(x)), error = ulps(math::softplus(x), exact);
        if (!(error <= worst)) worst = error, at = x;
    }
    INFO("worst at " << at);
    CHECK(worst <= 4);
    CHECK(math::softplus(1000.0f) == 1000.0f);
    CHECK(math::softplus(-1000.0f) == 0.0f);
    CHECK(math::softplus(0.0) == doctest::Approx(std::log(2.0)).epsilon(1e-15));
    float const infinity = std::numeric_limits<float>::infinity();
    CHECK(math::softplus(infinity) == infinity);
    CHECK(math::softplus(-infinity) == 0.0f);
    CHECK(math::softplus(std::numeric_limits<float>::max()) == std::numeric_limits<float>::max());
    CHECK(std::isnan(math::softplus(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("silu goes to x and to 0") {
    CHECK(math::silu(0.0f) == 0.0f);
    CHECK(math::silu(1000.0f) == 1000.0f);
    CHECK(math::silu(-1000.0f) == 0.0f);
    CHECK(math::silu(1.5) == doctest::Approx(1.5 / (1 + std::exp(-1.5))).epsilon(1e-15));
    CHECK(math::sigmoid(-1000.0) == 0.0);
}

TEST_CASE("gelu is the exact form, accurate to a few ulp in f32") {
    double worst = 0, worst_derivative = 0;
    for (int i = -8000; i <= 8000; ++i) {
        float const x = static_cast<float>(i) * 1e-3f;
        double const z = x;
        double const distribution = 0.5 * std::erfc(-z * std::sqrt(0.5));
        double const derivative = distribution + z * std::exp(-0.5 * z * z) / std::sqrt(2 * 3.14159265358979323846);
        CHECK(math::gelu(z) == doctest::Approx(z * distribution).epsilon(1e-12));
        if (i > -5000) worst = std::max(worst, ulps(math::gelu(x), z * distribution) * (i == 0 ? 0 : 1));
        worst_derivative = std::max(worst_derivative, std::abs(math::gelu_derivative(x) - derivative));
        CHECK(std::abs(math::gelu_derivative(z) - derivative) < 1e-14);
    }
    CHECK(worst < 32); // the argument of exp in the left tail, x^2 / 2, is rounded
    CHECK(worst_derivative < 1e-6);
    CHECK(math::gelu(0.0f) == 0.0f);
    CHECK(math::gelu(100.0f) == 100.0f);
    CHECK(math::gelu(-100.0f) == 0.0f);
}
