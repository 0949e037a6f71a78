// A strategy as JSON: an object with the fields of pentad::Strategy (strategy/fields.hpp) by their names. Enumerations
// are written as the names of their enumerators, an optimizer has a "type", and fields that are left out have defaults:
//
//     {"dp": 4, "tp": 2, "batch": 64, "micro_batches": 8, "block": {"context": "all_gather"}, "sharding": {"stage": 1},
//      "optimizer": {"type": "Muon", "momentum": 0.9}}
#pragma once

#include <pentad/strategy/strategy.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace pentad::io {

/// The fields that differ from their defaults; strategy_from_json() reads an equal strategy back.
std::string to_json(Strategy const& strategy);

/// Parses a strategy; does not check whether such a run is legal.
/// @throws std::invalid_argument with the place in the JSON and what is expected there
Strategy strategy_from_json(std::string_view text);

/// Reads a file that write_strategy() wrote, or an edited one.
/// @throws FileError with the file, the place in it and what is expected there
Strategy read_strategy(std::filesystem::path const& path);
void write_strategy(std::filesystem::path const& path, Strategy const& strategy);

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/strategy_file.hpp>
#endif
