#include <doctest/doctest.h>

#include <pentad/random/philox.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <set>

using namespace pentad;

TEST_CASE("bits are Philox4x32-10 as published") {
    // The known answers of Random123 for a counter and key of zeros, of ones, and of the digits of pi.
    auto const zeros = random::bits(0, 0, 0);
    CHECK(zeros.first == 0xe169c58d6627e8d5u);
    CHECK(zeros.second == 0x9b00dbd8bc57ac4cu);
    auto const ones = random::bits(~0ull, ~0ull, ~0ull);
    CHECK(ones.first == 0x41c83b0e408f276du);
    CHECK(ones.second == 0x6d5451fda20bc7c6u);
    auto const pi = random::bits(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
    CHECK(pi.first == 0x94fdccebd16cfe09u);
    CHECK(pi.second == 0x24126ea15001e420u);
}

TEST_CASE("the stream of a name is its FNV-1a hash") {
    static_assert(random::stream("") == 0xcbf29ce484222325u);
    static_assert(random::stream("a") == 0xaf63dc4c8601ec8cu);
    static_assert(random::stream("foobar") == 0x85944171f73967e8u);
    CHECK(random::stream("model.embed_tokens.weight") != random::stream("lm_head.weight"));
}

TEST_CASE("seed, stream and index each change what is drawn") {
    std::set<std::uint64_t> seen;
    for (std::uint64_t const seed : {0ull, 1ull, 1ull << 32})
        for (std::uint64_t const stream : {0ull, 1ull, 1ull << 32})
            for (std::uint64_t const index : {0ull, 1ull, 1ull << 32})
                seen.insert(random::bits(seed, stream, index).first);
    CHECK(seen.size() == 27);
}

TEST_CASE("normal numbers have the moments of the normal distribution") {
    constexpr int count = 400'000;
    std::array<double, 5> moment{};
    double neighbours = 0;
    double before = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        double const x = random::normal(7, random::stream("test"), i);
        double power = 1;
        for (double& m : moment) {
            m += power;
            power *= x;
        }
        neighbours += x * before;
        before = x;
    }
    // Five standard errors of each.
    double const error = 5 / std::sqrt(count);
    CHECK(std::abs(moment[1] / count) < error);
    CHECK(std::abs(moment[2] / count - 1) < error * std::sqrt(2));
    CHECK(std::abs(moment[3] / count) < error * std::sqrt(15));
    CHECK(std::abs(moment[4] / count - 3) < error * std::sqrt(96));
    CHECK(std::abs(neighbours / count) < error);
}

TEST_CASE("uniform numbers are in [0, 1) and even") {
    std::array<int, 16> bins{};
    constexpr int count = 160'000;
    for (std::uint64_t i = 0; i < count; ++i) {
        double const x = random::uniform(3, 4, i);
        REQUIRE(x >= 0);
        REQUIRE(x < 1);
        ++bins[static_cast<std::size_t>(x * 16)];
    }
    double chi_square = 0;
    for (int const bin : bins) chi_square += (bin - 10'000.0) * (bin - 10'000.0) / 10'000;
    CHECK(chi_square < 44.3); // 15 degrees of freedom, 1 in 10,000
}

TEST_CASE("integers below a bound are even, also where a modulus would favour some") {
    CHECK(random::uniform_below(1, 2, 3, 1) == 0);
    // Below 3 * 2^62, four words fall on three numbers: without rejection, every third comes twice as often.
    std::array<int, 3> thirds{};
    std::array<int, 3> remainders{};
    std::uint64_t const bound = 3ull << 62;
    for (std::uint64_t i = 0; i < 30'000; ++i) {
        std::uint64_t const x = random::uniform_below(1, 2, i, bound);
        REQUIRE(x < bound);
        ++thirds[x >> 62];
        ++remainders[x % 3];
    }
    for (int const third : thirds) CHECK(std::abs(third - 10'000) < 5 * 82);
    for (int const remainder : remainders) CHECK(std::abs(remainder - 10'000) < 5 * 82);
    std::array<int, 5> fifths{};
    for (std::uint64_t i = 0; i < 50'000; ++i) ++fifths.at(random::uniform_below(1, 2, i, 5));
    for (int const fifth : fifths) CHECK(std::abs(fifth - 10'000) < 5 * 90);
}
