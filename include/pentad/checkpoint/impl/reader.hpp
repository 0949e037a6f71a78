// The functions of <pentad/checkpoint/reader.hpp>.
#pragma once

#include <pentad/checkpoint/reader.hpp>

#include <pentad/checkpoint/folder.hpp>
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
    for (auto const& file : manifest_.files) names_.push_back(names_in_file(file.pieces));
    for (std::size_t i = 0; i < manifest_.files.size(); ++i)
        for (std::size_t k = 0; k < manifest_.files[i].pieces.size(); ++k)
            places_[manifest_.files[i].pieces[k].name()].push_back({i, k});
}

PENTAD_INLINE std::optional<std::string> Reader::name_fault() const {
    auto const path = folder_.filename().empty() ? folder_.parent_path() : folder_;
    auto const named = step_of(path.filename().string());
    if (!named || *named == manifest_.step) return std::nullopt;
    return "the checkpoint " + folder_.string() + " is of step " + std::to_string(manifest_.step) +
           ", and its folder is called " + path.filename().string();
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
    for (std::size_t k = 0; k < known.pieces.size(); ++k) {
        auto const& piece = known.pieces[k];
        auto const& name = names_[i][k];
        if (!reader->contains(name) || reader->tensor(name).type != piece.type ||
            reader->tensor(name).shape != std::vector{static_cast<std::int64_t>(piece.piece.size())})
            damaged(known.name, "it has no " + name + " as the manifest has it");
    }
    files_[i] = std::move(reader);
    return *files_[i];
}

PENTAD_INLINE std::size_t Reader::read_block(Place const& place, std::size_t k, std::byte* into) const {
    auto const& piece = manifest_.files[place.file].pieces[place.piece];
    auto const& name = names_[place.file][place.piece];
    std::uint64_t const first = k * block_bytes;
    std::size_t const bytes = std::min(block_bytes, piece.bytes() - first);
    opened(place.file).read_bytes(name, std::span(into, bytes), first);
    if (checksum(into, bytes) != piece.blocks[k])
        damaged(manifest_.files[place.file].name, name + " is not what was written");
    return bytes;
}

} // namespace pentad::checkpoint
