#include <doctest/doctest.h>

#include <pentad/layout/float8.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

using namespace pentad;

namespace {

template <class F>
F of_code(unsigned code) {
    F x;
    x.bits = static_cast<std::uint8_t>(code);
    return x;
}

/// The number of a code by the words of the paper.
double number(unsigned code, int mantissa_bits, int bias) {
    int const exponent = static_cast<int>((code & 127) >> mantissa_bits);
    double const fraction = static_cast<double>(code & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
    double const size = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    return code < 128 ? size : -size;
}

template <class F>
void check(int mantissa_bits, int bias, unsigned codes) {
    for (unsigned code = 0; code < 256; ++code) {
        if ((code & 127) >= codes) continue;
        float const value = of_code<F>(code);
        CHECK(value == number(code, mantissa_bits, bias));
        CHECK(F(value).bits == code);
        if ((code & 127) + 1 == codes) continue;
        // Between neighbours: to the nearer one, and from the middle to the even one.
        float const next = of_code<F>(code + 1), middle = (value + next) / 2;
        CHECK(F(std::nextafter(middle, value)).bits == code);
        CHECK(F(std::nextafter(middle, next)).bits == code + 1);
        CHECK(F(middle).bits == (code % 2 == 0 ? code : code + 1));
    }
}

} // namespace

TEST_CASE("numbers of 8 bits are those of their formats, rounded to nearest even") {
    check<f8e4m3>(3, 7, 0x7f);
    check<f8e5m2>(2, 15, 0x7c);
    CHECK(static_cast<float>(f8e4m3(1e9f)) == 448);
    CHECK(static_cast<float>(f8e5m2(-1e9f)) == -57344);
    float const infinity = std::numeric_limits<float>::infinity();
    CHECK(std::isnan(static_cast<float>(f8e4m3(infinity))));
    CHECK(static_cast<float>(f8e5m2(-infinity)) == -infinity);
    CHECK(std::isnan(static_cast<float>(f8e5m2(std::nanf("")))));
    CHECK(std::isnan(static_cast<float>(f8e4m3(std::nanf("")))));
}
