// Layers dealt to the stages of a pipeline so that the slowest stage is as fast as can be.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pentad::planner {

/// Deals `layers` layers to `stages` stages, in order: the costliest stage is as cheap as can be, and of such deals the
/// sum of the squares of the costs is least, so that the other stages are alike. Exact: the first by bisection, the
/// second by dynamic programming over the layers at which a stage can begin then. Stages may have no layer.
/// @param cost cost(stage, begin, end): of a stage with the layers [begin, end), of which more cost no less
/// @returns the layers of each stage
template <class Cost>
std::vector<std::int64_t> balanced_stages(std::size_t layers, std::size_t stages, Cost&& cost) {
    std::vector<std::size_t> latest(stages + 1), earliest(stages + 1); // layers at which a stage can begin
    // Each stage takes all that the limit lets it: whether that is all there are.
    auto const fits = [&](double limit) {
        std::size_t begin = 0;
        for (std::size_t stage = 0; stage < stages; ++stage) {
            latest[stage] = begin;
            if (cost(stage, begin, begin) > limit) return false;
            std::size_t end = begin;
            while (end < layers && cost(stage, begin, end + 1) <= limit) ++end;
            begin = end;
        }
        latest[stages] = begin;
        return begin == layers;
    };
    double least = 0, limit = 0;
    for (std::size_t stage = 0; stage < stages; ++stage) // dealt evenly
        limit = std::max(limit, cost(stage, layers * stage / stages, layers * (stage + 1) / stages));
    while (limit - least > 1e-14 * limit) {
        double const middle = least + (limit - least) / 2;
        (fits(middle) ? limit : least) = middle;
    }
    limit *= 1 + 1e-12; // sums that are rounded in another order are the same
    (void)fits(limit);
    earliest[stages] = layers;
    for (std::size_t stage = stages; stage-- > 0;) {
        std::size_t begin = earliest[stage + 1];
        while (begin > 0 && cost(stage, begin - 1, earliest[stage + 1]) <= limit) --begin;
        earliest[stage] = std::min(begin, latest[stage]);
    }
    // The least sum of squares of the last stages with the last layers, and where the first of these stages ends.
    struct Rest {
        double least = std::numeric_limits<double>::infinity();
        std::size_t end = 0;
    };
    std::vector<std::vector<Rest>> rests(stages + 1, std::vector<Rest>(layers + 1)); // by stage and first layer
    rests[stages][layers].least = 0;
    for (std::size_t stage = stages; stage-- > 0;)
        for (std::size_t begin = earliest[stage]; begin <= latest[stage]; ++begin) {
            auto& found = rests[stage][begin];
            for (std::size_t end = std::max(begin, earliest[stage + 1]); end <= latest[stage + 1]; ++end) {
                double const one = cost(stage, begin, end);
                if (one > limit) break;
                if (double const sum = one * one + rests[stage + 1][end].least; sum <= found.least) found = {sum, end};
            }
        }
    std::vector<std::int64_t> dealt;
    for (std::size_t stage = 0, begin = 0; stage < stages; ++stage) {
        std::size_t const end = rests[stage][begin].end;
        dealt.push_back(static_cast<std::int64_t>(end - begin));
        begin = end;
    }
    return dealt;
}

/// Balanced stages of layers whose costs add up; the first stage costs `first` more and the last `last`.
inline std::vector<std::int64_t> balanced_stages(std::span<double const> layers, double first, double last,
                                                 std::size_t stages) {
    std::vector<double> before(1, 0.0); // the cost of the layers before
    for (double const layer : layers) before.push_back(before.back() + layer);
    return balanced_stages(layers.size(), stages, [&](std::size_t stage, std::size_t begin, std::size_t end) {
        return before[end] - before[begin] + (stage == 0 ? first : 0) + (stage + 1 == stages ? last : 0);
    });
}

} // namespace pentad::planner
