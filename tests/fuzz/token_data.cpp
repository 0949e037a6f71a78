// Training data. The first bytes of the input say how long sequences are and where it is cut into files, of which one
// may become shorter while it is used.
#include "input.hpp"

#include <pentad/io/token_data.hpp>

#include <memory>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace pentad;
    if (size < 4) return 0;
    std::int64_t const seq = data[0];
    std::size_t const files = data[1] % 4u + 1;
    bool const cuts = data[2] % 2 != 0;
    std::uint64_t const seed = data[3];
    std::string_view const bytes = fuzz::text(data + 4, size - 4);
    std::vector<std::unique_ptr<fuzz::MemoryFile>> parts;
    std::vector<std::filesystem::path> paths;
    for (std::size_t i = 0; i < files; ++i) {
        auto const begin = bytes.size() * i / files, end = bytes.size() * (i + 1) / files;
        parts.push_back(std::make_unique<fuzz::MemoryFile>(bytes.substr(begin, end - begin)));
        paths.push_back(parts.back()->path());
    }
    try {
        io::TokenData const from_files(paths, seq, seed);
        fuzz::check(from_files.tokens() == bytes.size(), "all bytes are counted");
        std::vector<unsigned char> window(static_cast<std::size_t>(seq) + 1), same = window;
        io::TokenData const from_memory(bytes, "the input", seq, seed);
        if (cuts) std::filesystem::resize_file(paths[0], static_cast<std::uintmax_t>(seq) / 2);
        for (std::int64_t sequence = 0; sequence < 8; ++sequence) {
            from_files.read(sequence, window);
            auto const text = fuzz::text(window.data(), window.size());
            fuzz::check(bytes.find(text) != bytes.npos, "a window is part of the data");
            from_memory.read(sequence, same);
            fuzz::check(files > 1 || window == same, "a file holds what the memory holds");
        }
    } catch (io::FileError const&) {
    } catch (std::invalid_argument const&) {
        fuzz::check(seq == 0, "only an empty sequence is an invalid argument");
    }
    return 0;
}
