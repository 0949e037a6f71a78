#include <doctest/doctest.h>

#include <pentad/model/rotary.hpp>

#include <cmath>
#include <cstddef>
#include <numbers>

using namespace pentad;

TEST_CASE("pairs turn by powers of theta") {
    auto const frequencies = model::Rotary{.theta = 1e4}.frequencies(8);
    CHECK(frequencies.size() == 4);
    for (std::size_t i = 0; i < 4; ++i)
        CHECK(frequencies[i] == doctest::Approx(std::pow(10.0, -static_cast<double>(i))).epsilon(1e-14));
}

TEST_CASE("Llama 3's scaling slows pairs with long wavelengths, and leaves short ones") {
    // As transformers writes it, by wavelengths.
    double const factor = 8, low = 1, high = 4, original = 8192;
    auto const plain = model::Rotary{.theta = 5e5}.frequencies(128);
    auto const scaled = model::Rotary{.theta = 5e5,
                                      .scaling = {.factor = factor,
                                                  .low_frequency_factor = low,
                                                  .high_frequency_factor = high,
                                                  .original_positions = original}}
                            .frequencies(128);
    std::size_t kept = 0, slowed = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
        double const wavelength = 2 * std::numbers::pi / plain[i];
        double expected = plain[i];
        if (wavelength > original / low) {
            expected = plain[i] / factor;
            ++slowed;
        } else if (wavelength >= original / high) {
            double const smooth = (original / wavelength - low) / (high - low);
            expected = (1 - smooth) * plain[i] / factor + smooth * plain[i];
        } else {
            ++kept;
        }
        CHECK(scaled[i] == doctest::Approx(expected).epsilon(1e-13));
    }
    CHECK(kept > 20);
    CHECK(slowed > 20);
}
