// What pictures are written with: SVG that needs no script and no font.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

namespace pentad::report::svg {

/// One decimal is enough; whole numbers have none.
inline std::string number(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f", value);
    std::string_view const whole(text.data());
    return std::string(whole.ends_with(".0") ? whole.substr(0, whole.size() - 2) : whole);
}
/// The width that a text surely has room in.
inline double room_for(std::string_view text) { return 7 * static_cast<double>(text.size()) + 7; }

inline std::string escaped(std::string_view text) {
    std::string result;
    for (char const letter : text)
        if (letter == '&')
            result += "&amp;";
        else if (letter == '<')
            result += "&lt;";
        else if (static_cast<unsigned char>(letter) >= 0x20)
            result += letter;
    return result;
}

/// The whole file: what is drawn, on white.
inline std::string picture(double width, double height, std::string const& drawn) {
    auto const w = number(width), h = number(height);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h +
           "\" font-family=\"sans-serif\" font-size=\"11\">\n<path d=\"M0 0h" + w + "v" + h +
           "H0z\" fill=\"#fff\"/>\n" + drawn + "</svg>\n";
}

} // namespace pentad::report::svg
