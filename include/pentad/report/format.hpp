// Numbers for people: "1.5 GiB", "2m 05s", "312 GFLOP/s". Three figures are enough for all of them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pentad::report {

namespace detail {

/// Three significant figures without an exponent: 1.23, 12.3, 123, 1023.
std::string three_figures(double value);

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
std::optional<double> bytes_in(std::string_view text);

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
std::string duration(double seconds);

/// "0.1": as few figures as say the number exactly.
std::string exact(double value);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/format.hpp>
#endif
