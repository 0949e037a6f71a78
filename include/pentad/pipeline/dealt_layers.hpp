// How the layers of a model are dealt to the stages of a pipeline by default.
#pragma once

#include <cstdint>
#include <vector>

namespace pentad::pipeline {

/// The number of layers of each stage: they differ by one at most, and the first stages have one more, as the last one
/// has the head. @param stages at least 1
inline std::vector<std::int64_t> dealt_layers(std::int64_t layers, std::int64_t stages) {
    std::vector<std::int64_t> counts;
    for (std::int64_t stage = 0; stage < stages; ++stage)
        counts.push_back(layers / stages + (stage < layers % stages ? 1 : 0));
    return counts;
}

} // namespace pentad::pipeline
