// Why something cannot be, with the field to change.
#pragma once

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
    return std::string(field) + " = " + std::to_string(value);
}

} // namespace pentad
