// What a checkpoint consists of: the tensors of a run, and which file holds which piece of them, with checksums. Every
// element is there exactly once. Written as JSON: manifest.json beside the files.
#pragma once

#include <pentad/checkpoint/checksum.hpp>
#include <pentad/checkpoint/piece.hpp>
#include <pentad/io/json.hpp>
#include <pentad/io/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::checkpoint {

inline constexpr std::string_view manifest_file = "manifest.json";
/// The state that every tensor has; the others ("first_moment") are those of the optimizer.
inline constexpr std::string_view weight_state = "weight";

/// A piece of a state of a tensor, as a file holds it.
struct StoredPiece {
    std::string tensor;
    std::string state; ///< "weight", "first_moment", ...
    std::string type;  ///< safetensors_type<T>
    Piece piece;
    std::vector<Checksum> blocks{};

    /// Which state of which tensor it is of: a file may have several such pieces (names_in_file()).
    [[nodiscard]] std::string name() const { return tensor + "/" + state; }
    [[nodiscard]] std::uint64_t bytes() const { return piece.size() * io::detail::element_bytes(type); }
};

/// A safetensors file, of which each tensor is a piece, one-dimensional.
struct StoredFile {
    std::string name;
    std::uint64_t bytes = 0;
    Checksum header = 0; ///< of all before the data
    std::vector<StoredPiece> pieces{};
};

/// The names that the pieces of a file have in it: "tensor/state", and of the further pieces of one state, which are
/// other rows of the tensor, "tensor/state/1", "tensor/state/2" and so on.
std::vector<std::string> names_in_file(std::span<StoredPiece const> pieces);

struct Manifest {
    std::int64_t step = 0;               ///< updates of the weights
    io::detail::Json run;                ///< an object: what resuming needs to know beside the tensors
    std::vector<io::NamedShape> tensors; ///< published names and shapes
    std::vector<StoredFile> files;
};

namespace detail {

using io::detail::Json, io::detail::OrderedJson;

inline std::string const format = "pentad checkpoint 1";

OrderedJson json_of(StoredFile const& file);

inline constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

std::vector<std::int64_t> sizes(Json const& value, std::string const& where);

StoredPiece piece_of(Json const& json);

StoredFile file_of(Json const& json);

/// Whether two boxes of the same rank have an element in common.
inline bool overlap(io::Box const& a, io::Box const& b) {
    for (std::size_t d = 0; d < a.extents.size(); ++d)
        if (a.offsets[d] >= b.offsets[d] + b.extents[d] || b.offsets[d] >= a.offsets[d] + a.extents[d]) return false;
    return true;
}

} // namespace detail

/// Why the pieces are not every element of every tensor exactly once, in the states that each tensor has; nothing where
/// they are.
std::optional<std::string> cover_fault(Manifest const& manifest);

/// What a rank has written, as text to send to the rank that writes the manifest.
inline std::string text_of(StoredFile const& file) { return io::detail::dump(detail::json_of(file)); }
inline StoredFile file_of(std::string_view text) { return detail::file_of(io::detail::parse_object(text)); }

/// The text of manifest.json: its checksum, then what it says.
std::string text_of(Manifest const& manifest);

/// Reads text_of(). @throws std::invalid_argument where it is not one, is damaged, or its pieces are not every element
/// exactly once
Manifest manifest_of(std::string_view text);

} // namespace pentad::checkpoint

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/checkpoint/impl/manifest.hpp>
#endif
