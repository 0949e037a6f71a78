// Machines by name, each number with its source. What no public source states is called
// an assumption here: a hardware file with measured numbers is better (io/hardware_file.hpp).
#pragma once

#include <pentad/planner/hardware.hpp>
#include <pentad/planner/names.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace pentad::planner {

/// The machines that find_hardware() knows, a node of each.
std::vector<Hardware> const& machines();

/// A machine by name, such as h100; std::invalid_argument lists the names where it is not one.
[[nodiscard]] inline Hardware const& find_hardware(std::string_view name) {
    return detail::find_preset(machines(), name, "hardware");
}

/// The machine with that many devices: some of a node, or whole nodes, which the last tier of its links then joins.
/// std::invalid_argument where that cannot be.
[[nodiscard]] Hardware with_devices(Hardware hardware, std::int64_t devices);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/hardware_presets.hpp>
#endif
