// What the routers of a layer have done, in numbers for people.
#pragma once

#include <pentad/layout/layout.hpp>

#include <cstddef>
#include <vector>

namespace pentad {

/// The load of the experts of one layer since the layer was made.
struct RouterLoad {
    std::vector<double> choices; ///< of each expert, by this rank's tokens: summands over `axes`
    double dropped = 0;          ///< those of them for which an expert had no room: likewise
    AxisNames axes;
    double least_bias = 0, most_bias = 0; ///< in the last training pass
    bool has_bias = false;
    std::size_t ranks = 1, nodes = 1; ///< that hold the experts
};

} // namespace pentad
