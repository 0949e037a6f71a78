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

TEST_CASE("YaRN slows pairs that turn seldom, and is transformers'") {
    // _compute_yarn_parameters of transformers 5.24: DeepSeek-V3's, and a small one without mscale_all_dim.
    model::Yarn const yarn{
        .factor = 40, .original_positions = 4096, .fast = 32, .slow = 1, .turned_scale = 1, .score_scale = 1};
    auto const frequencies = model::Rotary{.theta = 1e4, .yarn = yarn}.frequencies(64);
    struct Expected {
        std::size_t pair;
        double frequency;
    };
    for (auto const& [pair, frequency] : {Expected{0, 1},
                                          {5, 0.23713736236095428},
                                          {10, 0.05623412877321243},
                                          {11, 0.039006926119327545},
                                          {15, 0.0083345090970397},
                                          {20, 0.0007905694073997438},
                                          {22, 0.00017782794020604342},
                                          {23, 3.333803397254087e-05},
                                          {31, 3.3338035336782923e-06}})
        CHECK(frequencies.at(pair) == doctest::Approx(frequency).epsilon(2e-7)); // of f32
    CHECK(yarn.amplitude() == 1);
    CHECK(yarn.score_factor() == doctest::Approx(std::pow(0.1 * std::log(40.0) + 1, 2)).epsilon(1e-15));

    model::Yarn const small{.factor = 4, .original_positions = 16, .turned_scale = 0.707};
    auto const slowed = model::Rotary{.theta = 1e4, .yarn = small}.frequencies(8);
    for (auto const& [pair, frequency] : {Expected{0, 1}, {1, 0.025}, {2, 0.0025}, {3, 0.00025}})
        CHECK(slowed.at(pair) == doctest::Approx(frequency).epsilon(1e-7));
    CHECK(small.amplitude() == doctest::Approx(1.138629436111989).epsilon(1e-14));
    CHECK(small.score_factor() == 1);
    CHECK(model::Yarn{}.amplitude() == 1);
    CHECK(model::Yarn{}.score_factor() == 1);
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
