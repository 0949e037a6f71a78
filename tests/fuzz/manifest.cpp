// The manifest of a checkpoint, with the right checksum: what is read has every element exactly once, and is written as
// text that reads the same.
#include "input.hpp"

#include <pentad/checkpoint/manifest.hpp>

#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace pentad;
    std::string const body(fuzz::text(data, size));
    try {
        auto const manifest =
            checkpoint::manifest_of("{\"checksum\":\"" + checkpoint::checksum_text(checkpoint::checksum(body)) +
                                    "\",\"manifest\":" + body + "}\n");
        fuzz::check(!checkpoint::cover_fault(manifest), "every element is there exactly once");
        auto const text = checkpoint::text_of(manifest);
        fuzz::check(checkpoint::text_of(checkpoint::manifest_of(text)) == text, "it is read back as it was written");
    } catch (std::invalid_argument const&) {
    }
    return 0;
}
