// The functions of <pentad/model/rotary.hpp>.
#pragma once

#include <pentad/model/rotary.hpp>

#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pentad::model::detail {

/// Eq. 22 of YaRN, with DeepSeek's weight of its logarithm.
PENTAD_INLINE double yarn_scale(double factor, double weight) {
    return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}
/// The number of the pair, of `pairs`, that turns so many times over a number of positions.
PENTAD_INLINE double pair_of_turns(double turns, double positions, double theta, double pairs) {
    return pairs * std::log(positions / (turns * 2 * std::numbers::pi)) / std::log(theta);
}

} // namespace pentad::model::detail

namespace pentad::model {

PENTAD_INLINE double Yarn::amplitude() const {
    if (turned_scale > 0 && score_scale > 0)
        return detail::yarn_scale(factor, turned_scale) / detail::yarn_scale(factor, score_scale);
    return detail::yarn_scale(factor, 1);
}
PENTAD_INLINE double Yarn::score_factor() const {
    double const scale = score_scale > 0 ? detail::yarn_scale(factor, score_scale) : 1;
    return scale * scale;
}

PENTAD_INLINE std::vector<double> Rotary::frequencies(std::size_t turned) const {
    std::vector<double> result(turned / 2);
    auto const pairs = static_cast<double>(result.size());
    auto const& s = scaling;
    // As its authors' code has them, the ends of YaRN's ramp are whole numbers of pairs.
    double const first =
        std::max(0.0, std::floor(detail::pair_of_turns(yarn.fast, yarn.original_positions, theta, pairs)));
    double last =
        std::min(2 * pairs - 1, std::ceil(detail::pair_of_turns(yarn.slow, yarn.original_positions, theta, pairs)));
    if (first == last) last += 0.001;
    for (std::size_t i = 0; i < result.size(); ++i) {
        double const frequency = std::pow(theta, -static_cast<double>(i) / pairs);
        if (yarn.factor != 1) {
            double const slowed = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
            result[i] = (1 - slowed) * frequency + slowed * frequency / yarn.factor;
            continue;
        }
        // Turns over the original length; from low to high the scaling fades.
        double const turns = s.original_positions * frequency / (2 * std::numbers::pi);
        double const place = (turns - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor);
        double const kept = s.factor == 1 || turns >= s.high_frequency_factor ? 1
                            : turns <= s.low_frequency_factor                 ? 0
                                                                              : place;
        result[i] = kept * frequency + (1 - kept) * frequency / s.factor;
    }
    return result;
}

} // namespace pentad::model
