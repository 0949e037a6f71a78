// What a rank of the pipeline holds of activations during the passes of a schedule, and the most of it. While a pass
// goes through a part of a stage, the parts after it have not saved anything yet, or have freed it.
#pragma once

#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pentad::planner {

/// What a part of a model holds of a micro-batch, in bytes.
struct PartMemory {
    double saved = 0;                                           ///< from its forward to its backward pass
    double left = 0;                                            ///< between the two parts of a split backward pass
    double forward = 0, backward_data = 0, backward_weight = 0; ///< at most during a pass, with what it saves or frees
};

/// Passes through a stage, as bits. A forward pass and a whole backward pass hold the same of parts that do not
/// compute.
enum PassBits : std::uint8_t {
    forward_pass = 1,
    backward_pass = 2, ///< not split: part by part, the data and then the weights
    backward_data_pass = 4,
    backward_weight_pass = 8,
};

/// A pass of a rank through one of its stages, and of how many other micro-batches the rank holds something meanwhile.
/// Without a pass: all that it holds between passes.
struct HeldMoment {
    std::vector<double> saved; ///< of each stage: micro-batches whose activations are saved
    std::vector<double> left;  ///< of each stage: those of which the part of the weights is left
    double inputs = 0;         ///< micro-batches of which the input of a stage is kept, to recompute all of it
    std::size_t stage = 0;
    std::uint8_t passes = 0;
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
    std::size_t beside = none; ///< the stage of a forward pass that takes turns with it
    double room = 0;           ///< bytes that activations may take

    /// Whether the rank holds at least as much of everything as in another moment.
    [[nodiscard]] bool covers(HeldMoment const& other) const;
    /// The moment after the pass, or before it, whichever holds more.
    [[nodiscard]] HeldMoment between_passes() const;
};

/// Adds a moment, unless the rank holds as much in another one; without those in which it holds no more.
void add_moment(std::vector<HeldMoment>& moments, HeldMoment const& added);

/// The moments of a schedule at which each of its ranks holds most: at no other is there more of everything. They have
/// no room yet.
std::vector<std::vector<HeldMoment>> held_moments(pipeline::Schedule const& schedule);

/// What a part adds to the bytes of a moment.
struct PartInMoment {
    double peak = 0;   ///< while the pass goes through it
    double before = 0; ///< while the pass goes through a part after it
    double after = 0;  ///< while the pass goes through a part before it
};
PartInMoment part_in_moment(PartMemory const& part, std::size_t stage, HeldMoment const& moment);

/// The bytes of a moment, part by part: those of a stage from the last to the first.
struct HeldBytes {
    double most = 0; ///< at the most, with the parts so far; the parts before them add to it as `before`
    double base = 0; ///< of the parts so far, while the pass goes through a part before them

    void add(PartInMoment const& part) {
        most = std::max(base + part.peak, most + part.before);
        base += part.after;
    }
};

/// A part of one of a rank's stages.
struct HeldPart {
    std::size_t stage = 0;
    PartMemory const* memory = nullptr;
};
/// What the forward pass that takes turns with another one may need for a while beyond what it saves, at the most.
/// @param whole with what it saves: an upper bound, whatever is recomputed
double bytes_beside(HeldMoment const& moment, std::span<HeldPart const> parts, bool whole = false);
/// The most bytes of activations that a rank holds, with what its passes need for a while.
/// @param parts of its stages, of each in the order of a forward pass @param input bytes of the input of a stage
double most_held(std::span<HeldMoment const> moments, std::span<HeldPart const> parts, double input);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/held_moments.hpp>
#endif
