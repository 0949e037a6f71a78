// The functions of <pentad/io/npy.hpp>.
#pragma once

#include <pentad/io/npy.hpp>

#include <pentad/io/known_beginnings.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/one_line.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>

namespace pentad::io::detail {

/// {'descr': '<u2', 'fortran_order': False, 'shape': (3, 4), }
class NpyDictionary {
  public:
    /// Nothing where the text is not such a dictionary, with these three keys.
    static std::optional<NpyHeader> parse(std::string_view text) {
        NpyDictionary parser(text);
        return parser.read() ? std::optional(parser.header_) : std::nullopt;
    }

  private:
    explicit NpyDictionary(std::string_view text) : left_(text) {}

    bool read();

    void skip_space() { left_.remove_prefix(std::min(left_.find_first_not_of(" \t\r\n"), left_.size())); }
    bool take(std::string_view word);
    bool take(char letter) { return take(std::string_view(&letter, 1)); }
    bool take_text(std::string& text);
    bool take_order() {
        header_.column_major = take("True");
        return header_.column_major || take("False");
    }
    bool take_number(std::uint64_t& number);
    /// (), (3,), (3, 4)
    bool take_shape();

    std::string_view left_;
    NpyHeader header_;
};

PENTAD_INLINE bool NpyDictionary::read() {
    bool has_type = false, has_order = false, has_shape = false;
    if (!take('{')) return false;
    while (!take('}')) {
        std::string key;
        if (!take_text(key) || !take(':')) return false;
        bool* const known = key == "descr"           ? &has_type
                            : key == "fortran_order" ? &has_order
                            : key == "shape"         ? &has_shape
                                                     : nullptr;
        if (known == nullptr || *known) return false;
        *known = true;
        if (!(known == &has_type ? take_text(header_.type) : known == &has_order ? take_order() : take_shape()))
            return false;
        if (!take(',')) {
            if (!take('}')) return false;
            break;
        }
    }
    skip_space();
    return left_.empty() && has_type && has_order && has_shape;
}

PENTAD_INLINE bool NpyDictionary::take(std::string_view word) {
    skip_space();
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
}

PENTAD_INLINE bool NpyDictionary::take_text(std::string& text) {
    skip_space();
    if (left_.empty() || (left_[0] != '\'' && left_[0] != '"')) return false;
    std::size_t const end = left_.find(left_[0], 1);
    if (end == left_.npos) return false;
    text = left_.substr(1, end - 1);
    left_.remove_prefix(end + 1);
    return true;
}

PENTAD_INLINE bool NpyDictionary::take_number(std::uint64_t& number) {
    skip_space();
    std::size_t digits = 0;
    for (number = 0; digits < left_.size() && left_[digits] >= '0' && left_[digits] <= '9'; ++digits) {
        if (number > std::numeric_limits<std::int64_t>::max() / 10 - 1) return false;
        number = number * 10 + static_cast<std::uint64_t>(left_[digits] - '0');
    }
    left_.remove_prefix(digits);
    return digits > 0;
}

PENTAD_INLINE bool NpyDictionary::take_shape() {
    if (!take('(')) return false;
    while (!take(')')) {
        if (!take_number(header_.shape.emplace_back())) return false;
        if (take(',')) continue;
        return header_.shape.size() > 1 && take(')'); // (3) is a number
    }
    return true;
}

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE NpyHeader read_npy_header(File const& file) {
    auto const refuse = [&](std::string const& why) {
        throw FileError("cannot read " + file.path().string() + " as .npy: " + why);
    };
    constexpr auto magic = npy_beginning;
    constexpr std::uint64_t most = 10'000; // NumPy's own limit
    std::uint64_t const size = file.size();
    std::array<char, 12> start{}; // the magic, the version, the length of the header: 2 bytes, from version 2 on 4
    file.read_at(0, start.data(), std::min<std::uint64_t>(size, start.size()));
    auto const byte = [&](std::size_t at) { return static_cast<std::uint64_t>(static_cast<unsigned char>(start[at])); };
    std::uint64_t const version = byte(6);
    if (std::string_view(start.data(), magic.size()) != magic) refuse("it does not begin as such a file");
    if (version < 1 || version > 3)
        refuse("it is of version " + std::to_string(version) + ", and versions 1 to 3 are read");
    std::uint64_t const begin = version == 1 ? 10 : 12;
    std::uint64_t length = byte(8) | byte(9) << 8;
    if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
    if (size < begin || length > size - begin || length > most)
        refuse("its header would be " + std::to_string(length) + " bytes long, and the file has " +
               std::to_string(size));
    std::string text(length, '\0');
    file.read_at(begin, text.data(), length);
    auto header = detail::NpyDictionary::parse(text);
    if (!header)
        refuse("its header is not {'descr': TEXT, 'fortran_order': False, 'shape': NUMBERS}: " + one_line(text));
    header->data = begin + length;
    return *header;
}

} // namespace pentad::io
