// Estimates as they are compared.
#pragma once

namespace pentad::planner::detail {

/// What plans are told apart by. The last bits of a sum depend on the compiler and the processor; rounded away, the
/// same plans are equal everywhere and a search goes the same way. Keeps the order: lower bounds remain bounds.
[[nodiscard]] inline float comparable(double seconds_or_bytes) { return static_cast<float>(seconds_or_bytes); }

} // namespace pentad::planner::detail
