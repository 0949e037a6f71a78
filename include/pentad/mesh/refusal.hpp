// Why something cannot be, with the field to change.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace pentad {

/// Why a run cannot be. Sentences have the numbers of fields as "heads = 6", by which programs find those that they
/// have flags for.
struct Refusal {
    std::string_view field; ///< what to change: a field of a Strategy ("sharding.stage"), or a size of the model
    std::string why;

    friend bool operator==(Refusal const&, Refusal const&) = default;
};

/// "sharding.ranks = 4"
template <class Number>
std::string stated(std::string_view field, Number value) {
    std::array<char, 32> text{};
    return std::string(field) + " = " +
           std::string(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

} // namespace pentad
