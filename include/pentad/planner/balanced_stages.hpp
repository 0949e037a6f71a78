// Layers dealt to the stages of a pipeline so that the slowest stage is as fast as can be.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pentad::planner {

namespace detail {
/// The least cost of the last stages with the last layers, and where the first of these stages ends.
struct StagesLeft {
    double least = std::numeric_limits<double>::infinity();
    std::size_t end = 0;
};
} // namespace detail

/// Deals `layers` layers to `stages` stages, in order: the costliest stage is as cheap as can be, and of such deals the
/// sum of the squares of the costs is least, so that the other stages are alike. Exact dynamic programming over pairs
/// of a stage and a layer. Stages may have no layer.
/// @param cost cost(stage, begin, end): of a stage with the layers [begin, end), as it grows with `end`
/// @returns the layers of each stage
template <class Cost>
std::vector<std::int64_t> balanced_stages(std::size_t layers, std::size_t stages, Cost&& cost) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::vector<std::vector<detail::StagesLeft>> rests(stages + 1); // by stage and first layer
    auto const deal = [&](auto&& is_too_much, auto&& join) {
        rests.assign(stages + 1, std::vector<detail::StagesLeft>(layers + 1));
        rests[stages][layers].least = 0;
        for (std::size_t stage = stages; stage-- > 0;)
            for (std::size_t begin = 0; begin <= layers; ++begin) {
                auto& found = rests[stage][begin];
                for (std::size_t end = begin; end <= layers; ++end) {
                    double const one = cost(stage, begin, end), rest = rests[stage + 1][end].least;
                    if (is_too_much(one, found.least)) break;
                    if (rest == infinity) continue;
                    if (double const sum = join(one, rest); sum <= found.least) found = {sum, end};
                }
            }
        return rests[0][0].least;
    };
    double const slowest = deal([](double one, double least) { return one > least; },
                                [](double one, double rest) { return std::max(one, rest); });
    double const limit = slowest * (1 + 1e-12); // sums that are rounded in another order are the same
    deal([&](double one, double) { return one > limit; }, [](double one, double rest) { return one * one + rest; });
    std::vector<std::int64_t> dealt;
    for (std::size_t stage = 0, begin = 0; stage < stages; ++stage) {
        std::size_t const end = rests[stage][begin].end;
        dealt.push_back(static_cast<std::int64_t>(end - begin));
        begin = end;
    }
    return dealt;
}

/// The same for layers whose costs add up; the first stage costs `first` more and the last `last`.
inline std::vector<std::int64_t> balanced_stages(std::span<double const> layers, double first, double last,
                                                 std::size_t stages) {
    std::vector<double> before(1, 0.0); // the cost of the layers before
    for (double const layer : layers) before.push_back(before.back() + layer);
    return balanced_stages(layers.size(), stages, [&](std::size_t stage, std::size_t begin, std::size_t end) {
        return before[end] - before[begin] + (stage == 0 ? first : 0) + (stage + 1 == stages ? last : 0);
    });
}

} // namespace pentad::planner
