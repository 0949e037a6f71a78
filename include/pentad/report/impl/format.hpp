// The functions of <pentad/report/format.hpp>.
#pragma once

#include <pentad/report/format.hpp>

#include <pentad/mesh/inline.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <system_error>

namespace pentad::report::detail {

PENTAD_INLINE std::string three_figures(double value) {
    double const size = std::abs(value);
    int const decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
    return text.data();
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE std::optional<double> bytes_in(std::string_view text) {
    double number = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return std::nullopt;
    auto const unit = text.substr(static_cast<std::size_t>(end - text.data()));
    static constexpr std::array<std::string_view, 5> units{"", "KiB", "MiB", "GiB", "TiB"};
    double scale = 1;
    for (auto const name : units) {
        if (unit == name && number > 0 && number * scale < 0x1p60) return number * scale;
        scale *= 1024;
    }
    return std::nullopt;
}

PENTAD_INLINE std::string duration(double seconds) {
    if (!(seconds >= 0)) return "?"; // also a time that is not a number
    if (seconds < 0.9995e-3) return detail::three_figures(seconds * 1e6) + " us";
    if (seconds < 0.9995) return detail::three_figures(seconds * 1e3) + " ms";
    if (seconds < 59.95) return detail::three_figures(seconds) + " s";
    if (seconds > 1e9) return "more than 30 years";
    auto const whole = static_cast<std::int64_t>(seconds + 0.5);
    std::array<char, 64> text{};
    auto const print = [&](std::int64_t large, char large_unit, std::int64_t small, char small_unit) {
        std::snprintf(text.data(), text.size(), "%lld%c %02lld%c", static_cast<long long>(large), large_unit,
                      static_cast<long long>(small), small_unit);
        return std::string(text.data());
    };
    if (whole < 3600) return print(whole / 60, 'm', whole % 60, 's');
    if (whole < 86400) return print(whole / 3600, 'h', whole % 3600 / 60, 'm');
    return print(whole / 86400, 'd', whole % 86400 / 3600, 'h');
}

PENTAD_INLINE std::string exact(double value) {
    std::array<char, 32> text{};
    auto const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
    return {text.data(), end};
}

} // namespace pentad::report
