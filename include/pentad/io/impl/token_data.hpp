// The functions of <pentad/io/token_data.hpp>.
#pragma once

#include <pentad/io/token_data.hpp>

#include <pentad/io/known_beginnings.hpp>
#include <pentad/io/npy.hpp>
#include <pentad/io/token_index.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/one_line.hpp>

#include <utility>

namespace pentad::io {

namespace detail {

/// The bytes of a number, where the beginning of a file looks like numbers that are wider than `width` bytes; else 0.
/// Their upper parts are 0, or 0, 1 and 2 next to the lowest with the largest vocabularies there are.
PENTAD_INLINE std::size_t wider_numbers(File const& file, std::size_t width) {
    std::array<unsigned char, 1 << 14> bytes{};
    auto const size = static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), bytes.size()));
    file.read_at(0, bytes.data(), size);
    auto const part_at = [&](std::size_t at) {
        std::uint32_t part = 0;
        std::memcpy(&part, bytes.data() + at, width);
        return part;
    };
    for (std::size_t wider = 8; wider > width; wider /= 2) {
        std::size_t const numbers = size / wider;
        if (numbers < 64 || file.size() % wider != 0) continue;
        std::size_t small_lowest = 0, small_upper = 0;
        for (std::size_t i = 0; i < numbers; ++i) {
            small_lowest += part_at(i * wider) <= 2 ? 1 : 0;
            bool is_small = part_at(i * wider + width) <= 2;
            for (std::size_t at = 2 * width; at < wider; at += width) is_small &= part_at(i * wider + at) == 0;
            small_upper += is_small ? 1 : 0;
        }
        if (50 * small_upper >= 49 * numbers && 2 * small_lowest < numbers) return wider;
    }
    return 0;
}

} // namespace detail

PENTAD_INLINE TokenData::TokenData(std::vector<TokenFile> const& files, std::int64_t vocabulary, std::int64_t seq,
                                   std::uint64_t seed)
    : TokenData(vocabulary, seq, seed) {
    if (files.empty()) throw std::invalid_argument("training data need at least one file");
    allow_open_files(files.size());
    for (auto const& [path, format] : files) {
        auto file = File::open_for_reading(path);
        auto part = part_of(file, format);
        part.file = std::move(file);
        add(std::move(part), path.string());
    }
}

PENTAD_INLINE TokenData::TokenData(std::string_view text, std::string const& name, std::int64_t seq, std::uint64_t seed)
    : TokenData(byte_values, seq, seed) {
    auto part = flat(name, text.size(), TokenFormat::bytes);
    part.memory = text;
    add(std::move(part), name);
}

PENTAD_INLINE TokenData::TokenData(std::int64_t vocabulary, std::int64_t seq, std::uint64_t seed)
    : vocabulary_(vocabulary), seq_(seq), seed_(seed) {
    if (seq < 1) throw std::invalid_argument("a sequence needs at least one token, not " + std::to_string(seq));
    if (vocabulary < 1 || vocabulary > largest_vocabulary)
        throw std::invalid_argument("a vocabulary has from 1 to " + std::to_string(largest_vocabulary) +
                                    " tokens, not " + std::to_string(vocabulary));
}

PENTAD_INLINE auto TokenData::part_of(File const& file, TokenFormat format) const -> Part {
    auto const name = file.path().string();
    if (format == TokenFormat::npy) return npy(file);
    if (auto const* const known = known_beginning(file); known != nullptr) {
        if (format != TokenFormat::bytes && known->bytes == npy_beginning) return npy(file); // whatever its name
        throw FileError(name + " is " + std::string(known->name) + ": " + std::string(known->advice));
    }
    if (format != TokenFormat::bytes) {
        if (begins_as_text(file)) throw FileError(name + " is text, and tokens are numbers");
        if (auto const index = index_beside(file.path())) return indexed(file, *index, format);
    }
    if (format == TokenFormat::automatic) format = width_of(file);
    auto part = flat(name, file.size(), format);
    if (auto const wider = detail::wider_numbers(file, part.width); wider > 0)
        throw FileError(name + " looks like numbers of " + std::to_string(8 * wider) + " bits, and is read as " +
                        (part.width == 1 ? "bytes" : "tokens of " + std::to_string(8 * part.width) + " bits") +
                        (wider < 8 && part.width > 1 ? ": name their type, or make a .npy file of them"
                         : part.width > 1            ? ": make a .npy file of them"
                                                     : ": make a .npy file of tokens of them, or UTF-8 of text"));
    return part;
}

PENTAD_INLINE TokenFormat TokenData::width_of(File const& file) const {
    constexpr std::int64_t most = std::int64_t{1} << 16;
    auto const name = file.path().string();
    if (vocabulary_ > most)
        throw UnknownTokenWidth(name +
                                " does not say whether its tokens are uint16 or uint32, and uint16 cannot name "
                                "all of a vocabulary of " +
                                std::to_string(vocabulary_));
    if (detail::wider_numbers(file, 2) == 4)
        throw UnknownTokenWidth(name + " does not say whether its tokens are uint16 or uint32, and every second of its "
                                       "16-bit words is 0, 1 or 2, as in numbers of 32 bits");
    return TokenFormat::uint16;
}

PENTAD_INLINE auto TokenData::indexed(File const& file, std::filesystem::path const& index, TokenFormat format)
    -> Part {
    auto const known = read_token_index(index);
    Part part{.width = known.width, .is_signed = known.is_signed};
    part.columns = known.tokens;
    auto const says = file.path().string() + ": the index beside it, " + index.string() + ", says that ";
    if (format != TokenFormat::automatic && known.width != (format == TokenFormat::uint16 ? 2 : 4))
        throw FileError(says + "its tokens are " + std::string(known.type) + ", not " +
                        (format == TokenFormat::uint16 ? "uint16" : "uint32"));
    if (std::uint64_t const bytes = file.size(); bytes % known.width != 0 || bytes / known.width != known.tokens)
        throw FileError(says + "it has " + std::to_string(known.tokens) + " tokens of " + std::to_string(known.width) +
                        " bytes, and it has " + std::to_string(bytes) + " bytes");
    return part;
}

PENTAD_INLINE auto TokenData::flat(std::string const& name, std::uint64_t bytes, TokenFormat format) -> Part {
    Part part{.width = format == TokenFormat::uint32 ? 4u : format == TokenFormat::uint16 ? 2u : 1u};
    part.columns = bytes / part.width;
    if (bytes % part.width != 0)
        throw FileError(name + " has " + std::to_string(bytes) + " bytes, which are no whole number of tokens of " +
                        std::to_string(part.width) + " bytes");
    return part;
}

PENTAD_INLINE auto TokenData::npy(File const& file) -> Part {
    auto const refuse = [&](std::string const& why) {
        throw FileError("cannot read " + file.path().string() + " as tokens: " + why);
    };
    auto const header = read_npy_header(file);
    Part part;
    if (header.type == "<u2" || header.type == "<u4" || header.type == "<i4" || header.type == "<i8") {
        part.width = static_cast<std::size_t>(header.type[2] - '0');
        part.is_signed = header.type[1] == 'i';
    } else {
        refuse("it holds '" + one_line(header.type) + "', and '<u2', '<u4', '<i4' and '<i8' are read");
    }
    if (header.shape.empty() || header.shape.size() > 2)
        refuse("it has " + std::to_string(header.shape.size()) + " dimensions, and 1 or 2 are read");
    bool const is_matrix = header.shape.size() == 2;
    if (header.column_major && is_matrix) refuse("it is in Fortran order, and C order is read");
    part.data = header.data;
    part.rows = is_matrix ? header.shape[0] : 1;
    part.columns = header.shape.back();
    std::uint64_t const bytes = file.size() - header.data, tokens = bytes / part.width;
    bool const fits =
        part.columns == 0 ? tokens == 0 : part.rows == tokens / part.columns && tokens % part.columns == 0;
    if (!fits || bytes % part.width != 0)
        refuse("it has " + std::to_string(bytes) + " bytes of data, which are no array of " +
               (is_matrix ? std::to_string(part.rows) + " x " : "") + std::to_string(part.columns) + " times " +
               std::to_string(part.width) + " bytes");
    return part;
}

PENTAD_INLINE void TokenData::add(Part part, std::string const& name) {
    auto const seq = static_cast<std::uint64_t>(seq_);
    std::string const unit = part.width == 1 ? " bytes" : " tokens";
    std::string const needed = "a window of seq = " + std::to_string(seq) + " needs " + std::to_string(seq + 1);
    if (part.rows == 0 || part.columns == 0) throw FileError(name + " is empty: " + needed + unit);
    if (part.columns <= seq)
        throw FileError(
            name + " has " + (part.rows > 1 ? "rows of " : "") + std::to_string(part.columns) + unit + ", and " +
            needed +
            (part.columns > 1 ? ": seq <= " + std::to_string(part.columns - 1) + " would fit" : ": no seq fits"));
    std::uint64_t const before = parts_.empty() ? 0 : windows(), more = part.rows * (part.columns - seq);
    if (more > std::numeric_limits<std::uint64_t>::max() - before) // sparse files can be that large
        throw FileError(name + " and the files before it have more windows than can be counted");
    part.windows_end = before + more;
    parts_.push_back(std::move(part));
}

PENTAD_INLINE void TokenData::refuse(Part const& part, std::uint64_t position, std::uint64_t token) const {
    auto const value = !part.is_signed   ? std::to_string(token)
                       : part.width == 4 ? std::to_string(static_cast<std::int32_t>(token))
                                         : std::to_string(static_cast<std::int64_t>(token));
    throw FileError((part.file.is_open() ? part.file.path().string() : "the text") + ": token " +
                    std::to_string(position) + " (counted from 0) is " + value + ", which is not in a vocabulary of " +
                    std::to_string(vocabulary_));
}

} // namespace pentad::io
