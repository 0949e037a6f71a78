// The files that a command line names, before any of them is opened: what is written is neither read nor
// written under another name, however the two names are spelled.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace pentad::io {

/// A file or folder that a flag names.
struct FlagFile {
    std::string flag;
    std::filesystem::path path;
    bool is_output;
};

/// A sentence about the first two of these files that may not be used together, or about one without a name; nothing
/// where all are distinct. Two inputs may be the same file, and devices and pipes are not compared.
std::optional<std::string> refusal_of(std::vector<FlagFile> const& files);

/// Whether a file can be written here, tried without changing what is there. @throws FileError
void check_writable(std::filesystem::path const& path);

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/distinct_files.hpp>
#endif
