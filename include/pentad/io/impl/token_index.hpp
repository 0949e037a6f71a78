// The functions of <pentad/io/token_index.hpp>.
#pragma once

#include <pentad/io/token_index.hpp>

#include <pentad/io/known_beginnings.hpp>
#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <system_error>

namespace pentad::io {

PENTAD_INLINE std::optional<std::filesystem::path> index_beside(std::filesystem::path const& tokens) {
    if (tokens.extension() != ".bin") return std::nullopt;
    auto path = tokens;
    path.replace_extension(".idx");
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
    auto const* const known = known_beginning(File::open_for_reading(path));
    if (known == nullptr || known->bytes != megatron_beginning) return std::nullopt;
    return path;
}

PENTAD_INLINE TokenIndex read_token_index(std::filesystem::path const& path) {
    // The magic, a version, the code of a type, the numbers of sequences and of documents; then the length of each
    // sequence (int32), where it begins in NAME.bin (int64), and where documents begin (int64).
    constexpr std::uint64_t begin = 9 + 8 + 1 + 8 + 8;
    static constexpr std::array<TokenIndex, 9> types{{{},
                                                      {"uint8", 1, false},
                                                      {"int8"},
                                                      {"int16"},
                                                      {"int32", 4, true},
                                                      {"int64", 8, true},
                                                      {"float64"},
                                                      {"float32"},
                                                      {"uint16", 2, false}}};
    auto const file = File::open_for_reading(path);
    auto const refuse = [&](std::string const& why) {
        throw FileError("cannot read " + path.string() + " as an index of tokens: " + why);
    };
    std::uint64_t const size = file.size();
    if (size < begin) refuse("it has " + std::to_string(size) + " bytes, and its header has " + std::to_string(begin));
    std::uint64_t version = 0, sequences = 0, documents = 0;
    unsigned char code = 0;
    file.read_at(9, &version, sizeof version);
    file.read_at(17, &code, sizeof code);
    file.read_at(18, &sequences, sizeof sequences);
    file.read_at(26, &documents, sizeof documents);
    if (version != 1) refuse("it is of version " + std::to_string(version) + ", and version 1 is read");
    if (code >= types.size() || types[code].width == 0)
        refuse("its tokens are of type " + std::to_string(code) +
               (code < types.size() && code > 0 ? " (" + std::string(types[code].type) + ")" : "") +
               ", and uint8, int32, int64 and uint16 are read");
    auto index = types[code];
    std::uint64_t const left = size - begin; // some versions write a byte more for each sequence
    if (sequences > left / 12 || documents > (left - 12 * sequences) / 8)
        refuse("it has " + std::to_string(size) + " bytes, which are too few for " + std::to_string(sequences) +
               " sequences of " + std::to_string(documents) + " documents");
    std::array<std::int32_t, 4096> lengths{};
    for (std::uint64_t first = 0; first < sequences; first += lengths.size()) {
        auto const count = static_cast<std::size_t>(std::min<std::uint64_t>(sequences - first, lengths.size()));
        file.read_at(begin + first * sizeof lengths[0], lengths.data(), count * sizeof lengths[0]);
        for (std::size_t i = 0; i < count; ++i) {
            if (lengths[i] < 0)
                refuse("sequence " + std::to_string(first + i) + " would have " + std::to_string(lengths[i]) +
                       " tokens");
            index.tokens += static_cast<std::uint64_t>(lengths[i]);
        }
    }
    return index;
}

} // namespace pentad::io
