// Whether the passes of a plan are pairs.
#pragma once

#include <pentad/pipeline/generators.hpp>
#include <pentad/strategy/strategy.hpp>

namespace pentad::planner {

/// Whether forwards and backwards of its schedule are pairs.
inline bool has_pairs(Strategy const& c) {
    auto const* const generator = pipeline::find_generator(c.schedule);
    return c.pairs && generator != nullptr && generator->has_pairs;
}

} // namespace pentad::planner
