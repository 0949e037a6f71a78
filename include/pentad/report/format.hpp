// Numbers for people: "1.5 GiB", "2m 05s", "312 GFLOP/s". Three figures are enough for all of them.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace pentad::report {

namespace detail {

/// Three significant figures without an exponent: 1.23, 12.3, 123, 1023.
inline std::string three_figures(double value) {
    double const size = std::abs(value);
    int const decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
    return text.data();
}

/// The value over the largest unit that leaves it at least 1.
template <std::size_t Count>
std::string scaled(double value, double base, std::array<std::string_view, Count> const& units) {
    std::size_t unit = 0;
    // 999.5 prints as 1000, which is 1.00 of the next unit.
    while (unit + 1 < Count && std::abs(value) >= base - 0.5) {
        value /= base;
        ++unit;
    }
    std::string const number = unit == 0 && value == std::floor(value) && std::abs(value) < base
                                   ? std::to_string(static_cast<long long>(value))
                                   : three_figures(value);
    return units[unit].empty() ? number : number + " " + std::string(units[unit]);
}

} // namespace detail

/// "512 B", "1.50 MiB"
inline std::string bytes(double count) {
    static constexpr std::array<std::string_view, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return detail::scaled(count, 1024, units);
}

/// Bytes as a user writes them: "8GiB", "1.5MiB", "1000000"; none where the text is anything else, or not positive.
inline std::optional<double> bytes_in(std::string_view text) {
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

/// "312 GFLOP/s"
inline std::string flop_rate(double flops_per_second) {
    static constexpr std::array<std::string_view, 7> units{"FLOP/s",  "kFLOP/s", "MFLOP/s", "GFLOP/s",
                                                           "TFLOP/s", "PFLOP/s", "EFLOP/s"};
    return detail::scaled(flops_per_second, 1000, units);
}

/// A count without a unit of its own: "950", "12.3 k", "1.05 M"
inline std::string count(double value) {
    static constexpr std::array<std::string_view, 6> units{"", "k", "M", "G", "T", "P"};
    return detail::scaled(value, 1000, units);
}

/// "850 us", "1.25 s", "2m 05s", "3h 20m", "2d 04h"
inline std::string duration(double seconds) {
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

} // namespace pentad::report
