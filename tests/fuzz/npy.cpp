// A .npy file as tokens. The first bytes of the input are the length of sequences, the seed, and the vocabulary; the
// file may become shorter while it is used.
#include "input.hpp"

#include <pentad/io/token_data.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace pentad;
    if (size < 3) return 0;
    std::int64_t const seq = data[0] + 1;
    std::uint64_t const seed = data[1];
    std::int64_t const vocabulary = 1 + data[2] * std::int64_t{256};
    auto const text = fuzz::text(data + 3, size - 3);
    fuzz::MemoryFile const file(text);
    try {
        io::TokenData const tokens({{file.path(), io::TokenFormat::npy}}, vocabulary, seq, seed);
        fuzz::check(tokens.tokens() < size && tokens.windows() < size, "every token is in the file");
        std::vector<std::int32_t> window(static_cast<std::size_t>(seq) + 1);
        for (std::int64_t sequence = 0; sequence < 8; ++sequence) {
            if (sequence == 6) std::filesystem::resize_file(file.path(), text.size() / 2);
            tokens.read(sequence, window);
            bool found = false; // as neighbours of some width
            for (std::size_t const width : {2u, 4u, 8u})
                for (std::size_t at = 0; !found && at + window.size() * width <= text.size(); ++at) {
                    found = true;
                    for (std::size_t i = 0; found && i < window.size(); ++i) {
                        std::uint64_t token = 0;
                        std::memcpy(&token, text.data() + at + i * width, width);
                        found = token == static_cast<std::uint64_t>(window[i]);
                    }
                }
            fuzz::check(found, "a window is part of the file");
            fuzz::check(std::all_of(window.begin(), window.end(),
                                    [&](std::int32_t token) { return token >= 0 && token < vocabulary; }),
                        "tokens are in the vocabulary");
        }
    } catch (io::FileError const&) {
    }
    return 0;
}
