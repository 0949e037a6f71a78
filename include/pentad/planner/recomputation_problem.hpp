// Which blocks of a rank recompute what, as a problem and its solution.
#pragma once

#include <pentad/planner/held_moments.hpp>

#include <cstddef>
#include <vector>

namespace pentad::planner {

/// One way to run a part, in bytes and in any unit of work.
struct BlockOption {
    PartMemory memory;
    double work = 0; ///< what is computed again
};

/// A part of a stage.
struct ChainPart {
    std::size_t stage = 0;
    std::size_t options = 0; ///< the place of its options in the problem's list; parts with the same are alike
};

struct RecomputationProblem {
    std::vector<std::vector<BlockOption>> options; ///< a part that recomputes nothing has one
    std::vector<ChainPart> parts;                  ///< of a rank's stages, of each in the order of a forward pass
    std::vector<HeldMoment> moments;               ///< each must have room
    std::size_t most_states = 4000; ///< of the dynamic programme: beyond, the least promising are dropped
};

struct RecomputationChoice {
    std::vector<std::size_t> options; ///< of each part
    double work = 0;
    double bound = 0;     ///< no choice has less work; less than `work` only where states were dropped
    bool is_exact = true; ///< no states were dropped
    double lacking = 0;   ///< bytes at the worst moment where no choice fits; then this one keeps little. 0: it fits
};

} // namespace pentad::planner
