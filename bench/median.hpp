// The median of samples: of an even number, the upper one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

inline double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}
