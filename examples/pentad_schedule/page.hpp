// The page of all schedules, which the program writes: no number on it is written by hand.
#pragma once

#include <filesystem>

namespace pentad_schedule {

/// Writes FOLDER/schedules.md and a picture of each schedule into FOLDER/schedules/, which is made if need be. Throws
/// pentad::io::FileError.
void write_page(std::filesystem::path const& folder);

} // namespace pentad_schedule
