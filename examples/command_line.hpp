// What the programs do alike with their command lines and their output.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/mesh/number.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

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

/// A sentence as one line, whatever it quotes.
inline std::string one_line(std::string_view sentence) {
    constexpr std::size_t longest = 2000;
    std::string line(sentence.substr(0, longest));
    std::replace_if(
        line.begin(), line.end(), [](char x) { return std::iscntrl(static_cast<unsigned char>(x)) != 0; }, '?');
    return sentence.size() > longest ? line + "..." : line;
}

/// Writes out what was printed. @throws pentad::io::FileError
inline void flush_output() {
    bool const failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
    if (failed) throw pentad::io::FileError("cannot write all of standard output: is its disk full?");
}

} // namespace command_line
