// The functions of <pentad/io/known_beginnings.hpp>.
#pragma once

#include <pentad/io/known_beginnings.hpp>

#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace pentad::io {

PENTAD_INLINE KnownBeginning const* known_beginning(File const& file) {
    std::array<char, 32> start{};
    std::uint64_t const size = file.size();
    auto const read = static_cast<std::size_t>(std::min<std::uint64_t>(size, start.size()));
    file.read_at(0, start.data(), read);
    std::string_view const text(start.data(), read);
    std::uint64_t length = 0; // of safetensors' JSON; of Arrow's metadata 4 bytes, behind 4 that are all ones
    std::memcpy(&length, start.data(), sizeof length);
    if (static_cast<std::uint32_t>(length) == ~std::uint32_t{0}) length >>= 32;
    auto const* const found =
        std::find_if(known_beginnings.begin(), known_beginnings.end(), [&](KnownBeginning const& known) {
            bool const is_there = text.size() > known.at && text.substr(known.at).starts_with(known.bytes);
            return is_there && (known.at != sizeof length || (length > 0 && length <= size - sizeof length));
        });
    return found == known_beginnings.end() ? nullptr : found;
}

PENTAD_INLINE bool begins_as_text(File const& file) {
    std::array<char, 256> start{};
    auto const read = static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), start.size()));
    if (read < 64) return false;
    file.read_at(0, start.data(), read);
    return std::all_of(start.data(), start.data() + read,
                       [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; });
}

} // namespace pentad::io
