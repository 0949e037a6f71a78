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
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
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
std::uint64_t element_bytes(std::string_view type);

/// Bytes of a tensor; nothing where the type is unknown, an extent negative, or the product beyond 2^63.
std::optional<std::uint64_t> tensor_bytes(std::string_view type, std::span<std::int64_t const> shape);

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
void check_writable(std::span<TensorEntry const> tensors);

} // namespace detail

/// What a file begins with: the length of the JSON, and the JSON. The data follow in the order of the tensors.
/// @throws std::invalid_argument where the format cannot hold them
std::string safetensors_header(std::span<TensorEntry const> tensors,
                               std::map<std::string, std::string> const& metadata = {{"format", "pt"}});

/// Writes a file whose tensors are known before their data: the header at once, then the data in the header's order, in
/// pieces of any size. The file appears at its path when it is complete.
class SafetensorsWriter {
  public:
    SafetensorsWriter(std::filesystem::path const& path, std::vector<TensorEntry> tensors,
                      std::map<std::string, std::string> const& metadata = {{"format", "pt"}});

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
    void append_bytes(std::span<std::byte const> bytes);

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
    explicit SafetensorsReader(std::filesystem::path const& path);

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
    void read_bytes(std::string_view name, std::span<std::byte> into, std::uint64_t first) const;
    template <class T>
    [[nodiscard]] std::vector<T> read(std::string_view name) const {
        auto const [begin, end] = places_[position(name)];
        std::vector<T> values((end - begin) / sizeof(T));
        read<T>(name, values);
        return values;
    }

    /// Reads the box of a tensor of F64, F32, BF16 or F16, row-major, as f64, f32 or bf16 (rounded to nearest even; f64
    /// to bf16 by way of f32). The reads of the file cover the box, and gaps of less than a page. @throws
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

    void read_metadata(detail::Json const& value);

    struct Placed {
        std::uint64_t begin, end; ///< in the data
        TensorEntry tensor;
    };

    [[nodiscard]] Placed read_entry(std::string const& name, detail::Json const& value) const;

    /// The tensors fill the data from the first byte to the last, without holes or overlaps.
    void place(std::vector<Placed> placed, std::uint64_t size);

    File file_;
    std::uint64_t data_ = 0;
    std::vector<TensorEntry> tensors_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> places_;
    std::map<std::string, std::size_t, std::less<>> index_;
    std::map<std::string, std::string> metadata_;
};

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/safetensors.hpp>
#endif
