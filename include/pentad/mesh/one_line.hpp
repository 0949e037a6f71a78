// Messages of one line: how they quote text from outside, such as a name in a file, and how they are printed.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace pentad {

/// Bytes of the character that a text begins with: 0 where it begins with a control character, or not as UTF-8.
constexpr std::size_t printable_character(std::string_view text) {
    auto const byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    unsigned const lead = byte(0);
    if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
    // Neither longer than needed, nor a half of a UTF-16 pair, nor beyond U+10FFFF, nor a control character (U+80-9F).
    unsigned const least = lead == 0xc2 || lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned const most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead < 0xc2 || lead > 0xf4 || byte(1) < least || byte(1) > most) return 0;
    std::size_t const length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    for (std::size_t at = 2; at < length; ++at)
        if ((byte(at) & 0xc0u) != 0x80) return 0;
    return length;
}

/// Whether a text can be a name: it is UTF-8 without control characters.
constexpr bool is_printable(std::string_view text) {
    while (std::size_t const length = printable_character(text)) text.remove_prefix(length);
    return text.empty();
}

/// The text as a message quotes it: what is not printable as `\xNN`, and at most `most` bytes of it, with "..." at the
/// end.
[[gnu::cold]] inline std::string one_line(std::string_view text, std::size_t most = 60) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string line;
    std::size_t fits = 0; // of the line, where "..." follows
    while (!text.empty() && line.size() <= most) {
        if (line.size() + 3 <= most) fits = line.size();
        std::size_t const length = printable_character(text);
        auto const byte = static_cast<unsigned char>(text[0]);
        if (length > 0)
            line += text.substr(0, length);
        else
            line += {'\\', 'x', digits[byte >> 4u], digits[byte & 15u]};
        text.remove_prefix(length > 0 ? length : 1);
    }
    return line.size() <= most ? line : line.substr(0, fits) + "...";
}

/// Prints a line on standard error in one piece. std::fprintf writes long lines in parts there, between which the
/// output of other processes may come.
inline void print_error(std::string line) {
    line += '\n';
    std::fputs(line.c_str(), stderr);
}

} // namespace pentad
