// What pentad_generate is asked for.
#pragma once

#include <pentad/strategy/strategy.hpp>
#include <pentad/train/sampling.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pentad_generate {

struct Options {
    std::string model;    ///< a folder with config.json and weights, or a checkpoint
    std::string prompts;  ///< a file, or "-"
    bool as_text = false; ///< lines are texts, not JSON
    /// What a request has that says nothing else.
    pentad::train::Sampling how{};
    std::size_t max_tokens = 64;
    std::vector<std::string> stops{};
    bool goes_on = false; ///< behind the tokens with which the model ends a text
    std::size_t sequences = 16, length = 0, pass_tokens = 512, page = 16;
    pentad::Strategy strategy{}; ///< mesh, element, layouts
    bool quiet = false;
};

/// The options of a command line, or its help.
struct Parsed {
    std::optional<Options> options{};
    std::string help{};
};
/// @throws program::BadInput
Parsed parse(int argc, char const* const* argv, int ranks);

} // namespace pentad_generate
