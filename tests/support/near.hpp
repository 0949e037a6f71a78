// Two numbers that agree but for a part of the second. (doctest::Approx takes its epsilon of 1 and the number together,
// which is no test of numbers far below 1.)
#pragma once

#include <cmath>

namespace test {

inline bool is_near(double value, double wanted, double part) {
    return std::abs(value - wanted) <= part * std::abs(wanted);
}

} // namespace test
