// A machine in JSON: what is read is written as JSON that reads the same.
#include "input.hpp"

#include <pentad/io/hardware_file.hpp>

#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace pentad;
    try {
        auto const text = io::to_json(io::hardware_from_json(fuzz::text(data, size)));
        fuzz::check(io::to_json(io::hardware_from_json(text)) == text, "a machine is read back as it was written");
    } catch (std::invalid_argument const&) {
    }
    return 0;
}
