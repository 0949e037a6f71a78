// Room: layout (pure constexpr). Text of fixed capacity that can be written while compiling and can be a template
// argument: how layouts come to stand in the compiler's messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace pentad {

/// Characters that can be a template argument; the compiler prints them when it refuses a program.
template <std::size_t Length>
struct FixedText {
    char characters[Length + 1]{};

    constexpr FixedText() = default;
    constexpr FixedText(char const (&text)[Length + 1]) { std::copy_n(text, Length + 1, characters); }
    constexpr explicit FixedText(std::string_view text) { std::copy_n(text.data(), Length, characters); }
    [[nodiscard]] constexpr std::string_view view() const { return {characters, Length}; }
};
template <std::size_t N>
FixedText(char const (&)[N]) -> FixedText<N - 1>;

namespace detail {
/// Appends words and numbers; what does not fit is cut.
struct TextWriter {
    std::array<char, 512> buffer{};
    std::size_t length = 0;

    constexpr TextWriter& operator<<(std::string_view text) {
        for (char const c : text)
            if (length < buffer.size()) buffer[length++] = c;
        return *this;
    }
    constexpr TextWriter& operator<<(std::size_t number) {
        char digits[20]{};
        int count = 0;
        do {
            digits[count++] = static_cast<char>('0' + number % 10);
            number /= 10;
        } while (number != 0);
        while (count > 0) *this << std::string_view(&digits[--count], 1);
        return *this;
    }
    [[nodiscard]] constexpr std::string_view view() const { return {buffer.data(), length}; }
};
} // namespace detail

} // namespace pentad
