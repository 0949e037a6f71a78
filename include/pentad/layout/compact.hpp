// Elements of fewer bits than accumulators, in which values are kept or sent: bf16, and 8-bit floats with a scale for
// each block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pentad {

enum class Compact : std::uint8_t {
    none, ///< accumulators
    bf16,
    fp8, ///< floats of three mantissa bits, with a power of two for each block of compact_block elements
};
inline constexpr std::array<std::string_view, 3> compact_names{"full", "bf16", "fp8"};

inline constexpr std::size_t compact_block = 128;

/// Bytes of some elements, with their scales: whole words of four, as they are sent.
constexpr std::size_t compact_bytes(Compact element, std::size_t elements, std::size_t accumulator_size) {
    std::size_t const bytes = element == Compact::none   ? elements * accumulator_size
                              : element == Compact::bf16 ? elements * 2
                                                         : elements + (elements + compact_block - 1) / compact_block;
    return (bytes + 3) / 4 * 4;
}

} // namespace pentad
