// The header of a .npy file, of which each version holds the same: a dictionary as Python prints it, with the
// type of the elements, their order and the shape.
#pragma once

#include <pentad/io/file.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace pentad::io {

/// What the header says, and where the elements begin.
struct NpyHeader {
    std::string type; ///< "<u2": little-endian, unsigned, 2 bytes
    bool column_major = false;
    std::vector<std::uint64_t> shape;
    std::uint64_t data = 0;
};

/// Reads the header of a file. @throws FileError where it has none that is complete
NpyHeader read_npy_header(File const& file);

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/npy.hpp>
#endif
