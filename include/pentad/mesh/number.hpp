// A text, as of a variable of the environment, as a number.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace pentad {

/// All of a text as a number; nothing when it is none, or one that does not fit.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
    Number value{};
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

} // namespace pentad
