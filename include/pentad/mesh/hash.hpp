// A hash that is the same on every machine and in every version.
#pragma once

#include <cstdint>
#include <string_view>

namespace pentad {

/// 64-bit FNV-1a (Fowler, Noll and Vo). @param hash of what comes before, for text in pieces
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325) {
    for (char const byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    return hash;
}

} // namespace pentad
