// What the programs do alike with their command lines.
#pragma once

#include <pentad/mesh/number.hpp>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

namespace command_line {

/// A check of a flag: decimal digits and nothing else. To CLI11 alone 1,2 is 12, and 010 is 8.
inline CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
    return {[=](std::string const& text) {
                auto const number = pentad::number_in<std::int64_t>(text);
                bool const is_one =
                    number && *number >= least && *number <= most && text == std::to_string(*number); // no zeros ahead
                return is_one ? std::string()
                              : text + " is not a whole number from " + std::to_string(least) + " to " +
                                    std::to_string(most);
            },
            ""};
}

} // namespace command_line
