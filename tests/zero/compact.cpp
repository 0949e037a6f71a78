// Conversions to elements of fewer bits: how far they round, with the right odds, what they keep exactly, and what
// becomes of numbers that are not finite.
#include <pentad/zero/compact.hpp>

#include <kernels/arrays.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

using namespace arrays;
using zero::CompactValues;
using zero::RoundingKey;

namespace {

template <class A>
struct Rounded {
    Kokkos::View<std::uint8_t*, Exec> memory;
    CompactValues values;

    Rounded(Compact element, bool is_signed, std::size_t n)
        : memory("rounded", compact_bytes(element, n, sizeof(A))), values(element, is_signed, n, memory.data()) {}
    Rounded& from(Vector<A> const& x, std::optional<RoundingKey> const& key = {}, A* residual = nullptr) {
        zero::compress<A>(Exec(), x.view(), values, key, residual);
        return *this;
    }
    std::vector<double> get() const {
        Vector<A> const y(static_cast<int>(values.size));
        zero::expand<A>(Exec(), values, y.view());
        return y.get();
    }
};

/// Of very different sizes, from block to block and within blocks.
std::vector<double> varied(std::size_t n, bool is_signed) {
    Random draw(n + 3);
    std::vector<double> x(n);
    for (auto& value : x) {
        value = std::ldexp(draw(), -draw.below(is_signed ? 12 : 25));
        if (!is_signed) value = std::abs(value);
    }
    return x;
}
double largest_of_block(std::vector<double> const& x, std::size_t i) {
    std::size_t const first = i / compact_block * compact_block;
    double largest = 0;
    for (std::size_t j = first; j < std::min(first + compact_block, x.size()); ++j)
        largest = std::max(largest, std::abs(x[j]));
    return largest;
}

} // namespace

TEST_CASE_TEMPLATE("fp8 keeps three bits of each number and its sign, or twice the range without", A, f32, f64) {
    for (bool const is_signed : {true, false})
        for (std::size_t const n : {0, 1, 127, 128, 129, 1000}) {
            Vector<A> const x(static_cast<int>(n));
            auto const given = varied(n, is_signed);
            x.set(given);
            auto const kept = x.get();
            for (std::optional<RoundingKey> const key :
                 {std::optional<RoundingKey>(), std::optional(RoundingKey{1, 2, 4})}) {
                auto const found = Rounded<A>(Compact::fp8, is_signed, n).from(x, key).get();
                for (std::size_t i = 0; i < n; ++i) {
                    double const step = key ? 1.0 / 8 : 1.0 / 16; // the last place, or half of it
                    double const least = std::ldexp(largest_of_block(kept, i), is_signed ? -17 : -33);
                    CHECK(std::abs(found[i] - kept[i]) <= std::max(step * std::abs(kept[i]), least) * 1.0001);
                }
            }
        }
}

TEST_CASE("what has been rounded is rounded to itself, to nearest or stochastically") {
    std::size_t const n = 1000;
    for (auto const element : {Compact::bf16, Compact::fp8})
        for (bool const is_signed : {true, false}) {
            Vector<f32> const x(n);
            x.set(varied(n, is_signed));
            for (int round = 0; round < 4; ++round) {
                auto const once = Rounded<f32>(element, is_signed, n).from(x, RoundingKey{7, 1, 0}).get();
                x.set(once);
                CHECK(Rounded<f32>(element, is_signed, n).from(x, RoundingKey{8, 5, 128}).get() == once);
                CHECK(Rounded<f32>(element, is_signed, n).from(x).get() == once);
                auto smaller = once; // other numbers beside it
                for (auto& value : smaller) value *= 0.8;
                x.set(smaller);
            }
        }
}

TEST_CASE("stochastic rounding is right on average, and a function of its key") {
    std::size_t const n = 20000;
    for (auto const element : {Compact::bf16, Compact::fp8}) {
        for (double const value : {1.0, 1.003, -1.0371, 0.9331}) {
            if (element == Compact::fp8 && value == 0.9331) continue;
            std::vector<double> all(n, value);
            Vector<f32> const x(static_cast<int>(n));
            x.set(all);
            double const exact = x.get()[0];
            auto const of = [&](RoundingKey key) { return Rounded<f32>(element, true, n).from(x, key).get(); };
            auto const found = of({3, 4, 8});
            double sum = 0;
            for (double const one : found) sum += one;
            double const step = std::ldexp(1.0, element == Compact::bf16 ? -7 : -3);
            CHECK(std::abs(sum / n - exact) < 4 * step / 2 / std::sqrt(static_cast<double>(n)) + 1e-7);
            CHECK(found == of({3, 4, 8}));
            if (value == 1.0) continue;
            CHECK(found != of({4, 4, 8}));
            CHECK(found != of({3, 5, 8}));
        }
    }
    // The number of an element decides, not where its part begins.
    Vector<f32> const x = Vector<f32>::random(301, 5);
    auto const whole = Rounded<f32>(Compact::bf16, true, 301).from(x, RoundingKey{1, 2, 10}).get();
    for (int const first : {1, 2, 7, 128}) {
        auto const values = x.get();
        Vector<f32> const rest(301 - first);
        rest.set({values.begin() + first, values.end()});
        auto const part = Rounded<f32>(Compact::bf16, true, static_cast<std::size_t>(301 - first))
                              .from(rest, RoundingKey{1, 2, 10 + static_cast<std::uint64_t>(first)})
                              .get();
        CHECK(part == std::vector<double>(whole.begin() + first, whole.end()));
    }
}

TEST_CASE("a number that is not finite is not finite afterwards, and spoils no other block") {
    double const infinity = std::numeric_limits<double>::infinity();
    for (double const bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
        auto values = varied(400, true);
        values[130] = bad;
        Vector<f32> const x(400);
        x.set(values);
        Vector<f32> const residual(400);
        auto const found = Rounded<f32>(Compact::fp8, true, 400).from(x, {}, residual.view().data()).get();
        CHECK(!std::isfinite(found[130]));
        for (std::size_t i = 0; i < 400; ++i)
            if (i / compact_block != 1) CHECK(std::isfinite(found[i]));
        for (double const error : residual.get()) CHECK(std::isfinite(error));
        for (auto const key : {std::optional<RoundingKey>(), std::optional(RoundingKey{1, 2, 0})})
            CHECK(!std::isfinite(Rounded<f32>(Compact::bf16, true, 400).from(x, key).get()[130]));
    }
    Vector<f32> const tiny({1e-45, 0.0, -1e-45, 1e-30}), zeros({0.0, 0.0});
    for (double const value : Rounded<f32>(Compact::fp8, true, 4).from(tiny).get()) CHECK(std::abs(value) < 2e-30);
    CHECK(Rounded<f32>(Compact::fp8, true, 2).from(zeros).get() == std::vector<double>{0, 0});
    Vector<f64> const large({1e300, 1.0}); // f32 scales: it says so instead of another number
    CHECK(!std::isfinite(Rounded<f64>(Compact::fp8, true, 2).from(large).get()[0]));
}

TEST_CASE("error feedback loses nothing: what is rounded away is there the next time") {
    std::size_t const n = 300;
    auto const values = varied(n, true);
    Vector<f64> const x(static_cast<int>(n)), residual(static_cast<int>(n));
    x.set(values);
    std::vector<double> sum(n, 0.0);
    for (int round = 1; round <= 50; ++round) {
        auto const found = Rounded<f64>(Compact::fp8, true, n).from(x, {}, residual.view().data()).get();
        auto const left = residual.get();
        for (std::size_t i = 0; i < n; ++i) {
            sum[i] += found[i];
            CHECK(std::abs(sum[i] + left[i] - round * values[i]) < 1e-13 * round * std::abs(values[i]) + 1e-18);
            CHECK(std::abs(left[i]) <= std::max(std::abs(values[i]), largest_of_block(values, i) / 4096) / 7);
        }
    }
}

TEST_CASE("copies are summed in their order") {
    for (auto const element : {Compact::bf16, Compact::fp8}) {
        std::size_t const n = 200, bytes = compact_bytes(element, n, 4);
        Kokkos::View<std::uint8_t*, Exec> const memory("copies", 3 * bytes);
        std::vector<float> expected(n, 0);
        for (std::size_t k = 0; k < 3; ++k) {
            CompactValues const part(element, true, n, memory.data() + k * bytes);
            zero::compress<f32>(Exec(), Vector<f32>::random(static_cast<int>(n), static_cast<int>(k)).view(), part);
            Vector<f32> const one(static_cast<int>(n));
            zero::expand<f32>(Exec(), part, one.view());
            auto const values = one.get();
            for (std::size_t i = 0; i < n; ++i) expected[i] += static_cast<float>(values[i]);
        }
        Vector<f32> const sum(static_cast<int>(n));
        zero::expand<f32>(Exec(), CompactValues(element, true, n, memory.data()), sum.view(), 3, bytes);
        CHECK(sum.get() == std::vector<double>(expected.begin(), expected.end()));
    }
}
