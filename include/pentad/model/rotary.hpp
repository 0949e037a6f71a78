// Rotary position embedding: how fast the pairs of a head turn.
#pragma once

#include <cstddef>
#include <vector>

namespace pentad::model {

/// The scaling of Llama 3.1 and later for sequences that are longer than those of pretraining: slow pairs turn `factor`
/// times as slowly, fast ones as before, those between in between. With infinite limits no pair is fast: position
/// interpolation (Chen et al. 2023, arXiv 2306.15595).
struct RotaryScaling {
    double factor = 1; ///< 1: none
    double low_frequency_factor = 1, high_frequency_factor = 4;
    double original_positions = 8192;

    friend bool operator==(RotaryScaling const&, RotaryScaling const&) = default;
};

/// YaRN (Peng et al. 2023, arXiv 2309.00071, section 3), which serves the same purpose: pairs that turn fewer than
/// `slow` times over the original positions turn `factor` times as slowly, those that turn more than `fast` times as
/// before, and those between in between. Scores are larger, either through the turned elements or as a whole.
struct Yarn {
    double factor = 1; ///< 1: none
    double original_positions = 4096;
    double fast = 32, slow = 1;
    /// DeepSeek's mscale and mscale_all_dim: how much larger turned elements and whole scores are. 0: not given.
    double turned_scale = 0, score_scale = 0;

    friend bool operator==(Yarn const&, Yarn const&) = default;

    /// What turned elements of queries and of keys are multiplied with.
    [[nodiscard]] double amplitude() const;
    /// What whole scores are multiplied with, beside 1 / sqrt(width), where attention takes score_scale to its scores
    /// (DeepSeek's does).
    [[nodiscard]] double score_factor() const;
};

/// Su et al. 2021, eq. 15.
struct Rotary {
    double theta = 1e4;
    RotaryScaling scaling{};
    double share = 1;            ///< of a head's elements, the first ones, that are turned
    bool is_interleaved = false; ///< elements 2 i and 2 i + 1 make a pair; otherwise i and i + half of them
    Yarn yarn{};

    /// Elements of a head that are turned.
    [[nodiscard]] std::size_t turned(std::size_t head_dim) const {
        return static_cast<std::size_t>(share * static_cast<double>(head_dim));
    }
    friend bool operator==(Rotary const&, Rotary const&) = default;

    /// The angle from one position to the next, of each of the turned / 2 pairs.
    [[nodiscard]] std::vector<double> frequencies(std::size_t turned) const;
};

} // namespace pentad::model

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/model/impl/rotary.hpp>
#endif
