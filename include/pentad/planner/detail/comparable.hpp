// Estimates as they are compared.
#pragma once

namespace pentad::planner::detail {

/// A time or a number of bytes without its last bits, which depend on the compiler and the processor: a search that
/// compares these goes the same way everywhere. Rounding keeps the order: lower bounds remain bounds.
[[nodiscard]] inline float comparable(double seconds_or_bytes) { return static_cast<float>(seconds_or_bytes); }

} // namespace pentad::planner::detail
