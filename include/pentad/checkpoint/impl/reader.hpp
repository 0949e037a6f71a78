// The functions of <pentad/checkpoint/reader.hpp>.
#pragma once

#include <pentad/checkpoint/reader.hpp>

#include <pentad/mesh/inline.hpp>

#include <utility>

namespace pentad::checkpoint::detail {

/// The checksum of all before the data of a safetensors file.
PENTAD_INLINE Checksum header_checksum(io::File const& file) {
    std::uint64_t length = 0;
    file.read_at(0, &length, sizeof length);
    if (length > file.size() - sizeof length) return 0;
    std::string header(sizeof length + length, '\0');
    file.read_at(0, header.data(), header.size());
    return checksum(header);
}

} // namespace pentad::checkpoint::detail

namespace pentad::checkpoint {

PENTAD_INLINE Reader::Reader(std::filesystem::path folder) : folder_(std::move(folder)) {
    auto const text = io::read_file(folder_ / manifest_file, std::uint64_t{1} << 31);
    try {
        manifest_ = manifest_of(text);
    } catch (std::invalid_argument const& error) {
        damaged(std::string(manifest_file), error.what());
    }
    files_.resize(manifest_.files.size());
    for (std::size_t i = 0; i < manifest_.files.size(); ++i)
        for (std::size_t k = 0; k < manifest_.files[i].pieces.size(); ++k)
            places_[manifest_.files[i].pieces[k].name()].push_back({i, k});
}

PENTAD_INLINE io::SafetensorsReader const& Reader::opened(std::size_t i) const {
    if (files_[i]) return *files_[i];
    auto const& known = manifest_.files[i];
    auto const path = folder_ / known.name;
    auto const file = io::File::open_for_reading(path);
    if (file.size() != known.bytes)
        damaged(known.name, "it has " + std::to_string(file.size()) + " bytes, and " + std::to_string(known.bytes) +
                                " were written");
    if (known.bytes < sizeof(std::uint64_t) || detail::header_checksum(file) != known.header)
        damaged(known.name, "its header is not what was written");
    auto reader = std::make_unique<io::SafetensorsReader>(path);
    for (auto const& piece : known.pieces)
        if (!reader->contains(piece.name()) || reader->tensor(piece.name()).type != piece.type ||
            reader->tensor(piece.name()).shape != std::vector{static_cast<std::int64_t>(piece.piece.size())})
            damaged(known.name, "it has no " + piece.name() + " as the manifest has it");
    files_[i] = std::move(reader);
    return *files_[i];
}

PENTAD_INLINE std::size_t Reader::read_block(std::size_t i, io::SafetensorsReader const& file, StoredPiece const& piece,
                                             std::size_t k, std::byte* into) const {
    std::uint64_t const first = k * block_bytes;
    std::size_t const bytes = std::min(block_bytes, piece.bytes() - first);
    file.read_bytes(piece.name(), std::span(into, bytes), first);
    if (checksum(into, bytes) != piece.blocks[k])
        damaged(manifest_.files[i].name, piece.name() + " is not what was written");
    return bytes;
}

} // namespace pentad::checkpoint
