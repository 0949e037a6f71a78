// Writes the file of one rank of a checkpoint.
#pragma once

#include <pentad/checkpoint/manifest.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/safetensors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pentad::checkpoint {

/// A piece of a state of a tensor, and its elements in host memory.
struct WrittenPiece {
    StoredPiece stored; ///< without checksums
    std::byte const* data = nullptr;
};

/// "rank-00003.safetensors"
inline std::string rank_file(int rank) {
    std::string digits = std::to_string(rank);
    digits.insert(0, 5 - std::min<std::size_t>(5, digits.size()), '0');
    return "rank-" + digits + ".safetensors";
}

namespace detail {

/// The checksum of all before the data of a safetensors file.
inline Checksum header_checksum(io::File const& file) {
    std::uint64_t length = 0;
    file.read_at(0, &length, sizeof length);
    if (length > file.size() - sizeof length) return 0;
    std::string header(sizeof length + length, '\0');
    file.read_at(0, header.data(), header.size());
    return checksum(header);
}

} // namespace detail

/// Writes pieces to a file and waits until they are on the disk. @throws io::FileError
inline StoredFile write_pieces(std::filesystem::path const& path, std::span<WrittenPiece const> pieces) {
    StoredFile file{.name = path.filename().string(), .pieces = {}};
    std::vector<io::TensorEntry> entries;
    for (auto const& piece : pieces)
        entries.push_back(
            {piece.stored.name(), piece.stored.type, {static_cast<std::int64_t>(piece.stored.piece.size())}});
    io::SafetensorsWriter writer(path, std::move(entries));
    for (auto const& piece : pieces) {
        auto& stored = file.pieces.emplace_back(piece.stored);
        std::uint64_t const bytes = stored.bytes();
        for (std::uint64_t at = 0; at < bytes; at += block_bytes) { // a block is summed up and written while in cache
            std::span const block(piece.data + at, std::min(block_bytes, bytes - at));
            stored.blocks.push_back(checksum(block.data(), block.size()));
            writer.append_bytes(block);
        }
    }
    writer.close();
    auto const written = io::File::open_for_reading(path);
    file.bytes = written.size();
    file.header = detail::header_checksum(written);
    return file;
}

} // namespace pentad::checkpoint
