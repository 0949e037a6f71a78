// Checksums of what a checkpoint's files hold: XXH3, 64 bits, written as 16 hexadecimal digits.
#pragma once

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pentad::checkpoint {

using Checksum = std::uint64_t;

/// A tensor's data have a checksum for each block of this size, so that a part of them can be read and verified.
inline constexpr std::uint64_t block_bytes = std::uint64_t{1} << 20;

inline Checksum checksum(void const* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }
inline Checksum checksum(std::string_view text) { return checksum(text.data(), text.size()); }

inline std::string checksum_text(Checksum sum) {
    std::string text(16, '0');
    for (std::size_t i = text.size(); i-- > 0; sum >>= 4u) text[i] = "0123456789abcdef"[sum & 15u];
    return text;
}
inline std::optional<Checksum> parse_checksum(std::string_view text) {
    Checksum sum = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum, 16);
    if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return sum;
}

} // namespace pentad::checkpoint
