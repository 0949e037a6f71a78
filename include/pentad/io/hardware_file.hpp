// A machine in a JSON file; of a tier of its links, "topology" may be left out, of the file the name and all
// after the links:
//
//     {"name": "two nodes", "devices": 16, "devices_per_node": 8,
//      "peak_flops": {"bf16": 3e14, "f32": 2e13}, "memory_bytes": 8e10, "memory_bandwidth": 2e12,
//      "links": [{"devices": 8, "latency_s": 3e-6, "bandwidth": 3e11, "topology": "switched"},
//                {"devices": 16, "latency_s": 1e-5, "bandwidth": 2.5e10}],
//      "product_efficiency": 0.8, "attention_efficiency": 0.7, "pass_efficiency": 1, "product_s": 0, "pass_s": 0,
//      "bandwidth_efficiency": 0.8, "launch_s": 1e-5, "call_s": 0, "micro_batch_s": 0, "overlap": 0.5,
//      "sharing": 0, "jitter_s": 0}
#pragma once

#include <pentad/planner/hardware.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace pentad::io {

/// The machine as JSON, which hardware_from_json() reads back as it is.
std::string to_json(planner::Hardware const& hardware);

/// Throws std::invalid_argument with the place in the JSON and what is expected there.
planner::Hardware hardware_from_json(std::string_view text);

/// Reads a machine; FileError names the file, the place and what is expected there.
planner::Hardware read_hardware(std::filesystem::path const& path);
void write_hardware(std::filesystem::path const& path, planner::Hardware const& hardware);

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/hardware_file.hpp>
#endif
