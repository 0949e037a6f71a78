// Rotary position embedding: how fast the pairs of a head turn.
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace pentad::model {

/// The scaling of Llama 3.1 and later for sequences that are longer than those of pretraining: slow pairs turn `factor`
/// times as slowly, fast ones as before, those between in between.
struct RotaryScaling {
    double factor = 1; ///< 1: none
    double low_frequency_factor = 1, high_frequency_factor = 4;
    double original_positions = 8192;

    friend bool operator==(RotaryScaling const&, RotaryScaling const&) = default;
};

/// Su et al. 2021, eq. 15.
struct Rotary {
    double theta = 1e4;
    RotaryScaling scaling{};
    double share = 1; ///< of a head's elements, the first ones, that are turned

    /// Elements of a head that are turned.
    [[nodiscard]] std::size_t turned(std::size_t head_dim) const {
        return static_cast<std::size_t>(share * static_cast<double>(head_dim));
    }
    friend bool operator==(Rotary const&, Rotary const&) = default;

    /// The angle from one position to the next, of each of the turned / 2 pairs.
    [[nodiscard]] std::vector<double> frequencies(std::size_t turned) const {
        std::vector<double> result(turned / 2);
        auto const& s = scaling;
        for (std::size_t i = 0; i < result.size(); ++i) {
            double const frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(result.size()));
            // Turns over the original length; from low to high the scaling fades.
            double const turns = s.original_positions * frequency / (2 * std::numbers::pi);
            double const place = (turns - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor);
            double const kept = s.factor == 1 || place >= 1 ? 1 : place <= 0 ? 0 : place;
            result[i] = kept * frequency + (1 - kept) * frequency / s.factor;
        }
        return result;
    }
};

} // namespace pentad::model
