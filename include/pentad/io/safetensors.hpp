// The safetensors format: eight bytes with the length of a JSON header, the header (name, type, shape and
// place of each tensor), then the tensors one after the other. The writer streams; the reader trusts nothing it reads.
#pragma once

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/io/tensor_box.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/mesh/one_line.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::io {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian, and so must we be");

/// What the header says about a tensor.
struct TensorEntry {
    std::string name;
    std::string type; ///< "F64", "F32", ...: safetensors_type<T>
    std::vector<std::int64_t> shape;
};

/// The name that the format gives to an element type.
template <class T>
inline constexpr std::string_view safetensors_type = "";
template <>
inline constexpr std::string_view safetensors_type<double> = "F64";
template <>
inline constexpr std::string_view safetensors_type<float> = "F32";
template <>
inline constexpr std::string_view safetensors_type<bf16> = "BF16";
template <>
inline constexpr std::string_view safetensors_type<std::int64_t> = "I64";

namespace detail {

/// The name of a tensor in a message: published names have up to 80 letters.
inline std::string shown(std::string_view name) { return one_line(name, 120); }

/// Bytes of an element; 0 where the format knows no such type.
inline std::uint64_t element_bytes(std::string_view type) {
    static constexpr std::array<std::pair<std::string_view, int>, 17> known{{{"F64", 8},
                                                                             {"F32", 4},
                                                                             {"F16", 2},
                                                                             {"BF16", 2},
                                                                             {"I64", 8},
                                                                             {"I32", 4},
                                                                             {"I16", 2},
                                                                             {"I8", 1},
                                                                             {"U64", 8},
                                                                             {"U32", 4},
                                                                             {"U16", 2},
                                                                             {"U8", 1},
                                                                             {"BOOL", 1},
                                                                             {"C64", 8},
                                                                             {"F8_E4M3", 1},
                                                                             {"F8_E5M2", 1},
                                                                             {"F8_E8M0", 1}}};
    for (auto const& [name, bytes] : known)
        if (name == type) return static_cast<std::uint64_t>(bytes);
    return 0;
}

/// Bytes of a tensor; nothing where the type is unknown, an extent negative, or the product beyond 2^63.
inline std::optional<std::uint64_t> tensor_bytes(std::string_view type, std::span<std::int64_t const> shape) {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::uint64_t bytes = element_bytes(type);
    if (bytes == 0) return std::nullopt;
    for (std::int64_t const extent : shape) {
        if (extent < 0) return std::nullopt;
        if (extent > 0 && bytes > most / static_cast<std::uint64_t>(extent)) return std::nullopt;
        bytes *= static_cast<std::uint64_t>(extent);
    }
    return bytes;
}

/// Lets the disk begin with what was written whenever that is 16 MiB.
class Flushes {
  public:
    template <class AnyFile>
    void after(std::uint64_t bytes, AnyFile& file) {
        waiting_ += bytes;
        if (waiting_ < std::uint64_t{16} << 20) return;
        file.start_flush();
        waiting_ = 0;
    }

  private:
    std::uint64_t waiting_ = 0;
};

/// Throws std::invalid_argument where a file cannot hold these tensors.
inline void check_writable(std::span<TensorEntry const> tensors) {
    std::set<std::string_view> names;
    for (auto const& tensor : tensors) {
        auto const refuse = [&](char const* why) { throw std::invalid_argument("tensor " + shown(tensor.name) + why); };
        if (!tensor_bytes(tensor.type, tensor.shape)) refuse(" has a type or a shape that safetensors cannot hold");
        if (tensor.name == "__metadata__" || !names.insert(tensor.name).second)
            refuse(" is given twice, or has the name that the format keeps for itself");
        if (!is_printable(tensor.name)) refuse(" has a name that is not UTF-8, or has control characters");
    }
}

} // namespace detail

/// What a file begins with: the length of the JSON, and the JSON. The data follow in the order of the tensors.
/// @throws std::invalid_argument where the format cannot hold them
inline std::string safetensors_header(std::span<TensorEntry const> tensors,
                                      std::map<std::string, std::string> const& metadata = {{"format", "pt"}}) {
    using detail::OrderedJson, detail::dump;
    detail::check_writable(tensors);
    std::string text; // tensor by tensor: an ordered_json would compare each name with all before it
    if (!metadata.empty()) text = ",\"__metadata__\":" + dump(metadata);
    std::uint64_t offset = 0;
    for (auto const& [name, type, shape] : tensors) {
        std::uint64_t const end = offset + detail::tensor_bytes(type, shape).value();
        OrderedJson const place{{"dtype", type}, {"shape", shape}, {"data_offsets", {offset, end}}};
        text += "," + dump(name) + ":" + dump(place);
        offset = end;
    }
    if (text.empty()) text = ",";
    text[0] = '{';
    text += '}';
    text.resize((text.size() + 7) / 8 * 8, ' '); // so that the data are aligned
    std::uint64_t const length = text.size();
    std::string header(sizeof length, '\0');
    std::memcpy(header.data(), &length, sizeof length);
    return header + text;
}

/// Writes a file whose tensors are known before their data: the header at once, then the data in the header's order, in
/// pieces of any size. The file appears at its path when it is complete.
class SafetensorsWriter {
  public:
    SafetensorsWriter(std::filesystem::path const& path, std::vector<TensorEntry> tensors,
                      std::map<std::string, std::string> const& metadata = {{"format", "pt"}})
        : file_(path), tensors_(std::move(tensors)) {
        file_.write(safetensors_header(tensors_, metadata));
        std::uint64_t end = 0;
        for (auto const& tensor : tensors_)
            ends_.push_back(end += detail::tensor_bytes(tensor.type, tensor.shape).value());
    }

    /// Adds data to the tensor whose turn it is; a piece may end one tensor and begin the next.
    template <class T>
    void append(std::span<T const> piece) {
        while (!piece.empty()) {
            skip_complete();
            if (next_ < ends_.size() && tensors_[next_].type != safetensors_type<T>)
                throw std::logic_error("tensor " + tensors_[next_].name + " holds " + tensors_[next_].type +
                                       ", and is given " + std::string(safetensors_type<T>));
            auto const count = std::min<std::uint64_t>(piece.size(), left() / sizeof(T));
            append_bytes(std::as_bytes(piece.first(count == 0 ? 1 : count)));
            piece = piece.subspan(count);
        }
    }
    /// Adds bytes to the tensor whose turn it is, no more than it still takes.
    void append_bytes(std::span<std::byte const> bytes) {
        skip_complete();
        if (bytes.size() > left()) throw std::logic_error("more data than tensors for " + file_.path().string());
        file_.write(bytes.data(), bytes.size());
        written_ += bytes.size();
        flushes_.after(bytes.size(), file_);
    }

    /// The file, in which every tensor is complete: for commit(), or for publish() together with others.
    [[nodiscard]] AtomicFile& finish() {
        skip_complete();
        if (next_ != ends_.size()) throw std::logic_error("tensor " + tensors_[next_].name + " is not complete");
        return file_;
    }
    /// Puts the file in place. Every tensor is complete.
    void close() { finish().commit(); }

  private:
    void skip_complete() {
        while (next_ < ends_.size() && ends_[next_] == written_) ++next_;
    }
    /// Bytes that the tensor whose turn it is still takes.
    [[nodiscard]] std::uint64_t left() const { return next_ < ends_.size() ? ends_[next_] - written_ : 0; }

    AtomicFile file_;
    std::vector<TensorEntry> tensors_;
    std::vector<std::uint64_t> ends_;
    std::uint64_t written_ = 0;
    detail::Flushes flushes_;
    std::size_t next_ = 0;
};

/// Reads a file. The constructor reads and checks the header: every later read stays inside the file.
class SafetensorsReader {
  public:
    explicit SafetensorsReader(std::filesystem::path const& path) : file_(File::open_for_reading(path)) {
        std::uint64_t const size = file_.size();
        std::uint64_t length = 0;
        if (size < sizeof length)
            refuse("it has " + std::to_string(size) + " bytes, fewer than the 8 that say how long its header is");
        file_.read_at(0, &length, sizeof length);
        constexpr std::uint64_t most = 100'000'000; // the limit of the format's own library
        if (length > most || length > size - sizeof length)
            refuse("its header would be " + std::to_string(length) + " bytes long, and the file has " +
                   std::to_string(size));
        std::string text(length, '\0');
        file_.read_at(sizeof length, text.data(), length);
        data_ = sizeof length + length;

        std::vector<Placed> placed;
        try {
            auto const header = detail::parse_object(text, "its header");
            for (auto const& [name, value] : header.items()) {
                if (name == "__metadata__")
                    read_metadata(value);
                else
                    placed.push_back(read_entry(name, value));
            }
        } catch (std::invalid_argument const& error) {
            refuse(error.what());
        }
        place(std::move(placed), size - data_);
    }

    [[nodiscard]] std::filesystem::path const& path() const { return file_.path(); }
    /// In the order of their data.
    [[nodiscard]] std::vector<TensorEntry> const& tensors() const& { return tensors_; }
    [[nodiscard]] std::vector<TensorEntry> tensors() && { return std::move(tensors_); } // outlives a temporary reader
    [[nodiscard]] std::map<std::string, std::string> const& metadata() const { return metadata_; }

    [[nodiscard]] bool contains(std::string_view name) const { return index_.contains(name); }
    [[nodiscard]] TensorEntry const& tensor(std::string_view name) const { return tensors_[position(name)]; }

    /// Reads the elements from `first` on, as many as `into` takes.
    template <class T>
    void read(std::string_view name, std::span<T> into, std::uint64_t first = 0) const {
        std::size_t const at = position(name);
        if (tensors_[at].type != safetensors_type<T>)
            refuse("tensor " + detail::shown(name) + " holds " + tensors_[at].type + ", not " +
                   std::string(safetensors_type<T>));
        auto const [begin, end] = places_[at];
        std::uint64_t const count = (end - begin) / sizeof(T);
        if (first > count || into.size() > count - first)
            refuse("tensor " + detail::shown(name) + " has " + std::to_string(count) + " elements; " +
                   std::to_string(into.size()) + " from the " + std::to_string(first) + "th on were asked for");
        file_.read_at(data_ + begin + first * sizeof(T), into.data(), into.size_bytes());
    }
    /// Reads the bytes from `first` on, whatever the type.
    void read_bytes(std::string_view name, std::span<std::byte> into, std::uint64_t first) const {
        auto const [begin, end] = places_[position(name)];
        if (first > end - begin || into.size() > end - begin - first)
            refuse("tensor " + detail::shown(name) + " has " + std::to_string(end - begin) + " bytes");
        file_.read_at(data_ + begin + first, into.data(), into.size());
    }
    template <class T>
    [[nodiscard]] std::vector<T> read(std::string_view name) const {
        auto const [begin, end] = places_[position(name)];
        std::vector<T> values((end - begin) / sizeof(T));
        read<T>(name, values);
        return values;
    }

    /// Reads the box of a tensor of F64, F32, BF16 or F16, row-major, as f64, f32 or bf16 (rounded to nearest even; f64
    /// to bf16 by way of f32). Of the file it reads what the box holds, and gaps of less than a page. @throws
    /// std::invalid_argument where the box is not inside, or `into` of another size.
    template <class T>
    void read_box(std::string_view name, Box const& box, std::span<T> into) const {
        static_assert(std::is_same_v<T, f64> || std::is_same_v<T, f32> || std::is_same_v<T, bf16>,
                      "weights are read as f64, f32 or bf16");
        std::size_t const at = position(name);
        auto const& shape = tensors_[at].shape;
        std::string const tensor = "tensor " + detail::shown(name);
        if (!detail::is_inside(box, shape))
            throw std::invalid_argument(tensor + " is " + detail::shape_text(shape) + ": it has no box of " +
                                        detail::shape_text(box.extents) + " at " + detail::shape_text(box.offsets));
        if (into.size() != detail::elements(box))
            throw std::invalid_argument("a box of " + detail::shape_text(box.extents) + " of " + tensor + " has " +
                                        std::to_string(detail::elements(box)) + " elements, and there is room for " +
                                        std::to_string(into.size()));
        bool const is_real = detail::with_real_type(tensors_[at].type, [&](auto element) {
            read_pieces<decltype(element)>(places_[at], shape, box, into.data());
        });
        if (!is_real)
            refuse(tensor + " holds " + one_line(tensors_[at].type) + "; what is read is F64, F32, BF16 and F16");
    }

  private:
    [[noreturn]] void refuse(std::string const& why) const {
        throw FileError("cannot read " + file_.path().string() + " as safetensors: " + why);
    }

    [[nodiscard]] std::size_t position(std::string_view name) const {
        auto const found = index_.find(name);
        if (found == index_.end()) refuse("it has no tensor " + detail::shown(name));
        return found->second;
    }

    /// @param place of the tensor in the data, from and to
    template <class Stored, class T>
    void read_pieces(std::pair<std::uint64_t, std::uint64_t> place, std::span<std::int64_t const> shape, Box const& box,
                     T* into) const {
        std::uint64_t const size = place.second - place.first;
        auto const bytes = std::make_unique_for_overwrite<std::byte[]>(std::min(detail::Piece::most_bytes, size));
        detail::Piece piece(sizeof(Stored));
        auto const read_piece = [&] {
            if (piece.runs().empty()) return;
            file_.read_at(data_ + place.first + piece.begin() * sizeof(Stored), bytes.get(),
                          (piece.end() - piece.begin()) * sizeof(Stored));
            for (auto const& [first, count] : piece.runs()) {
                detail::convert<Stored>(bytes.get() + (first - piece.begin()) * sizeof(Stored), into, count);
                into += count;
            }
            piece.clear();
        };
        detail::for_each_run(box, shape, [&](std::uint64_t first, std::uint64_t count) {
            for (detail::Piece::Run run{first, count}; run.count > 0;)
                if (!piece.take(run)) read_piece();
        });
        read_piece();
    }

    void read_metadata(detail::Json const& value) {
        if (!value.is_object()) refuse("its __metadata__ is not an object");
        for (auto const& [key, text] : value.items()) {
            if (!text.is_string()) refuse("its __metadata__ has a value that is not a text: " + detail::shown(key));
            metadata_[key] = text.template get<std::string>();
        }
    }

    struct Placed {
        std::uint64_t begin, end; ///< in the data
        TensorEntry tensor;
    };

    [[nodiscard]] Placed read_entry(std::string const& name, detail::Json const& value) const {
        auto const is_size = [](detail::Json const& number) {
            return number.is_number_unsigned() &&
                   number.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        };
        auto const is_sizes = [&](char const* key) {
            return value.contains(key) && value[key].is_array() &&
                   std::all_of(value[key].begin(), value[key].end(), is_size);
        };
        std::string const tensor = "tensor " + detail::shown(name);
        if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() || !is_sizes("shape") ||
            !is_sizes("data_offsets") || value["data_offsets"].size() != 2)
            refuse(tensor + " is not described by dtype, shape and data_offsets");

        TensorEntry entry{name, value["dtype"].get<std::string>(), value["shape"].get<std::vector<std::int64_t>>()};
        auto const begin = value["data_offsets"][0].get<std::uint64_t>();
        auto const end = value["data_offsets"][1].get<std::uint64_t>();
        auto const bytes = detail::tensor_bytes(entry.type, entry.shape);
        if (!bytes) refuse(tensor + " has the unknown type " + one_line(entry.type) + " or a shape beyond any memory");
        if (end < begin || end - begin != *bytes)
            refuse(tensor + " takes " + std::to_string(*bytes) + " bytes, and its place is from " +
                   std::to_string(begin) + " to " + std::to_string(end));
        return {begin, end, std::move(entry)};
    }

    /// The tensors fill the data from the first byte to the last, without holes or overlaps.
    void place(std::vector<Placed> placed, std::uint64_t size) {
        std::sort(placed.begin(), placed.end(), [](Placed const& a, Placed const& b) {
            return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
        });
        std::uint64_t last = 0;
        for (auto& [begin, end, tensor] : placed) {
            if (begin != last)
                refuse("tensor " + detail::shown(tensor.name) + " begins at " + std::to_string(begin) +
                       ", where the one before it ends at " + std::to_string(last));
            last = end;
            index_.emplace(tensor.name, tensors_.size());
            places_.emplace_back(begin, end);
            tensors_.push_back(std::move(tensor));
        }
        if (last != size)
            refuse("its tensors end at " + std::to_string(last) + ", its data at " + std::to_string(size) +
                   " (cut short?)");
    }

    File file_;
    std::uint64_t data_ = 0;
    std::vector<TensorEntry> tensors_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> places_;
    std::map<std::string, std::size_t, std::less<>> index_;
    std::map<std::string, std::string> metadata_;
};

} // namespace pentad::io
