// Tokens as training data: a sequence is a window of seq + 1 tokens of one file. Which window is a pure
// function of (seed, number of the sequence), so every rank finds the sequences of any mesh by itself. A text is a file
// of tokens that have one byte each.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/random/philox.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::io {

static_assert(std::endian::native == std::endian::little, "files of tokens are little-endian, and so must we be");

/// How a file holds tokens.
enum class TokenFormat {
    bytes,     ///< one after the other, as text has them
    uint16,    ///< as little-endian numbers
    uint32,    ///< likewise
    npy,       ///< as NumPy writes an array
    automatic, ///< as the file, or an index of Megatron-LM beside it (io/token_index.hpp), says; else uint16, where
               ///< that can be meant
};

/// .npy for such a name; what else there is has no header, and is as the caller says.
inline TokenFormat token_format(std::filesystem::path const& path, TokenFormat without_header) {
    return path.extension() == ".npy" ? TokenFormat::npy : without_header;
}

/// A file does not say how wide its tokens are, and uint16 can hardly be meant: the caller names another format.
class UnknownTokenWidth : public FileError {
  public:
    using FileError::FileError;
};

struct TokenFile {
    std::filesystem::path path;
    TokenFormat format;
};

class TokenData {
  public:
    /// Tokens are below this.
    static constexpr std::int64_t largest_vocabulary = std::numeric_limits<std::int32_t>::max();

    /// The files in this order; `seq` is the number of targets in a sequence. A .npy file is an array of '<u2', '<u4',
    /// '<i4' or '<i8' in C order, whose rows, if it has two dimensions, are windows' bounds as files are. Refuses
    /// (FileError) a file that is missing, empty, too short for one window, not in its format, or by its first bytes
    /// something else (io/known_beginnings.hpp); UnknownTokenWidth. The files stay open.
    TokenData(std::vector<TokenFile> const& files, std::int64_t vocabulary, std::int64_t seq, std::uint64_t seed);
    /// Text: a token is a byte.
    TokenData(std::vector<std::filesystem::path> const& paths, std::int64_t seq, std::uint64_t seed)
        : TokenData(as_bytes(paths), byte_values, seq, seed) {}
    /// A text in memory, which outlives this object.
    TokenData(std::string_view text, std::string const& name, std::int64_t seq, std::uint64_t seed);

    /// The window of a sequence, counted from 0 over the whole run: seq + 1 tokens at a place drawn uniformly from all
    /// that fit. Inputs are tokens 0 to seq - 1, targets tokens 1 to seq. Throws FileError where a token is not in the
    /// vocabulary, or not there any more: files are read, not mapped, as a mapped file that is cut short ends its
    /// readers by a signal.
    void read(std::int64_t sequence, std::span<std::int32_t> window) const { read_window(sequence, window); }
    /// Reads a window of tokens that are all below 256.
    void read(std::int64_t sequence, std::span<unsigned char> window) const {
        if (vocabulary_ > byte_values)
            throw std::invalid_argument("tokens of a vocabulary of " + std::to_string(vocabulary_) + " are no bytes");
        read_window(sequence, window);
    }

    /// How many different windows there are.
    [[nodiscard]] std::uint64_t windows() const { return parts_.back().windows_end; }
    [[nodiscard]] std::uint64_t tokens() const {
        std::uint64_t sum = 0;
        for (auto const& part : parts_) sum += part.rows * part.columns;
        return sum;
    }
    [[nodiscard]] std::int64_t vocabulary() const { return vocabulary_; }

  private:
    static constexpr std::int64_t byte_values = 256;

    /// A file, or a text in memory: rows of tokens.
    struct Part {
        File file{};               ///< or, where it is not open,
        std::string_view memory{}; ///< a text in memory
        std::size_t width = 1;     ///< bytes of a token
        bool is_signed = false;
        std::uint64_t data = 0; ///< where the tokens begin
        std::uint64_t rows = 1, columns = 0;
        std::uint64_t windows_end = 0; ///< windows in this part and those before it
    };

    TokenData(std::int64_t vocabulary, std::int64_t seq, std::uint64_t seed);
    static std::vector<TokenFile> as_bytes(std::vector<std::filesystem::path> const& paths) {
        std::vector<TokenFile> files;
        for (auto const& path : paths) files.push_back({path, TokenFormat::bytes});
        return files;
    }

    /// Tokens without a header.
    static Part flat(std::string const& name, std::uint64_t bytes, TokenFormat format);
    static Part npy(File const& file);
    /// Tokens of which an index beside the file says what they are.
    static Part indexed(File const& file, std::filesystem::path const& index, TokenFormat format);
    [[nodiscard]] Part part_of(File const& file, TokenFormat format) const;
    /// uint16, where that can be meant.
    [[nodiscard]] TokenFormat width_of(File const& file) const;

    void add(Part part, std::string const& name);

    template <class Token>
    void read_window(std::int64_t sequence, std::span<Token> window) const {
        auto const seq = static_cast<std::uint64_t>(seq_);
        if (window.size() != seq + 1)
            throw std::invalid_argument("a window of seq = " + std::to_string(seq_) + " has seq + 1 tokens, not " +
                                        std::to_string(window.size()));
        auto const drawn =
            random::uniform_below(seed_, random::stream("data"), static_cast<std::uint64_t>(sequence), windows());
        auto const part =
            std::upper_bound(parts_.begin(), parts_.end(), drawn, [](std::uint64_t number, Part const& candidate) {
                return number < candidate.windows_end;
            });
        std::uint64_t const number = drawn - (part == parts_.begin() ? 0 : std::prev(part)->windows_end);
        std::uint64_t const in_row = part->columns - seq;
        read_tokens(*part, number / in_row * part->columns + number % in_row, window);
    }

    template <class Token>
    void read_tokens(Part const& part, std::uint64_t first, std::span<Token> into) const {
        std::array<std::byte, 16384> bytes;
        std::size_t const most = bytes.size() / part.width;
        while (!into.empty()) {
            std::size_t const count = std::min(into.size(), most);
            if (part.file.is_open())
                part.file.read_at(part.data + first * part.width, bytes.data(), count * part.width);
            else
                std::memcpy(bytes.data(), part.memory.data() + first, count);
            for (std::size_t i = 0; i < count; ++i) {
                std::uint64_t token = 0;
                std::memcpy(&token, bytes.data() + i * part.width, part.width);
                // A negative number is none of the vocabulary either: as a pattern of bits it is at least 2^31.
                if (token >= static_cast<std::uint64_t>(vocabulary_)) refuse(part, first + i, token);
                into[i] = static_cast<Token>(token);
            }
            first += count;
            into = into.subspan(count);
        }
    }
    [[noreturn]] void refuse(Part const& part, std::uint64_t position, std::uint64_t token) const;

    std::int64_t vocabulary_;
    std::int64_t seq_;
    std::uint64_t seed_;
    std::vector<Part> parts_;
};

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/token_data.hpp>
#endif
