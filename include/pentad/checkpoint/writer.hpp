// Writes the file of one rank of a checkpoint.
#pragma once

#include <pentad/checkpoint/checksum.hpp>
#include <pentad/checkpoint/manifest.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/safetensors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

/// The header of a file of these pieces. @throws std::invalid_argument where the format cannot hold them
inline std::string header_of(std::span<StoredPiece const> pieces) {
    auto const names = names_in_file(pieces);
    std::vector<io::TensorEntry> entries;
    for (std::size_t i = 0; i < pieces.size(); ++i)
        entries.push_back({names[i], pieces[i].type, {static_cast<std::int64_t>(pieces[i].piece.size())}});
    return io::safetensors_header(entries);
}

/// Writes pieces to a file and waits until they are on the disk. A file that is there is overwritten in place.
/// @throws io::FileError
inline StoredFile write_pieces(std::filesystem::path const& path, std::span<WrittenPiece const> pieces) {
    StoredFile stored_file{.name = path.filename().string()};
    for (auto const& piece : pieces) stored_file.pieces.push_back(piece.stored);
    std::string const header = header_of(stored_file.pieces);
    stored_file.bytes = header.size();
    stored_file.header = checksum(header);
    auto file = io::File::open_to_overwrite(path);
    file.write(header);
    io::detail::Flushes flushes;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        auto& stored = stored_file.pieces[i];
        std::uint64_t const bytes = stored.bytes();
        for (std::uint64_t at = 0; at < bytes; at += block_bytes) { // a block is summed up and written while in cache
            std::span const block(pieces[i].data + at, std::min(block_bytes, bytes - at));
            stored.blocks.push_back(checksum(block.data(), block.size()));
            file.write(block.data(), block.size());
            stored_file.bytes += block.size();
            flushes.after(block.size(), file);
        }
    }
    file.cut(stored_file.bytes);
    file.flush_to_disk();
    file.close();
    return stored_file;
}

} // namespace pentad::checkpoint
