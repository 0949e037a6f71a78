// A box of a tensor, such as the rows or columns that a rank holds: which pieces of the tensor's elements it is made
// of, and how elements of a file become those of the memory.
#pragma once

#include <pentad/layout/element.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::io {

/// A tensor as models and checkpoints name it.
struct NamedShape {
    std::string name;
    std::vector<std::int64_t> shape;
};

/// In each dimension `extents` elements from `offsets` on.
struct Box {
    std::vector<std::int64_t> offsets;
    std::vector<std::int64_t> extents;

    /// All of a tensor.
    static Box whole(std::vector<std::int64_t> shape) {
        return {.offsets = std::vector<std::int64_t>(shape.size(), 0), .extents = std::move(shape)};
    }
};

namespace detail {

/// IEEE 754 binary16, as files hold it.
struct Half {
    std::uint16_t bits = 0;

    explicit operator float() const {
        std::uint32_t const sign = std::uint32_t{bits & 0x8000u} << 16, exponent = (bits >> 10) & 31u;
        std::uint32_t const mantissa = bits & 0x3ffu;
        if (exponent == 0) return std::copysign(static_cast<float>(mantissa) * 0x1p-24f, sign != 0 ? -1.0f : 1.0f);
        std::uint32_t const wider = exponent == 31 ? 255 : exponent + 127 - 15;
        return std::bit_cast<float>(sign | wider << 23 | mantissa << 13);
    }
};

/// Rounds to nearest even; f64 becomes bf16 by way of f32.
template <class To, class From>
To converted(From value) {
    if constexpr (std::is_same_v<To, From>)
        return value;
    else
        return To(static_cast<float>(value));
}

/// Calls `use` with a zero of the element type of this name; false where it is none that becomes a real number.
template <class Use>
bool with_real_type(std::string_view type, Use const& use) {
    if (type == "F64") return use(double()), true;
    if (type == "F32") return use(float()), true;
    if (type == "BF16") return use(bf16()), true;
    if (type == "F16") return use(Half()), true;
    return false;
}

/// Elements of a file, at any address.
template <class From, class To>
void convert(std::byte const* from, To* to, std::size_t count) {
    if constexpr (std::is_same_v<From, To>) {
        std::memcpy(to, from, count * sizeof(To));
    } else {
        for (std::size_t i = 0; i < count; ++i) {
            From value;
            std::memcpy(&value, from + i * sizeof(From), sizeof value);
            to[i] = converted<To>(value);
        }
    }
}

/// "[2, 3]"
inline std::string shape_text(std::span<std::int64_t const> shape) {
    std::string text = "[";
    for (auto const extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
    return text + "]";
}

/// Whether a box lies in a tensor of this shape.
inline bool is_inside(Box const& box, std::span<std::int64_t const> shape) {
    if (box.offsets.size() != shape.size() || box.extents.size() != shape.size()) return false;
    for (std::size_t d = 0; d < shape.size(); ++d) {
        auto const offset = box.offsets[d], extent = box.extents[d];
        if (offset < 0 || extent < 0 || offset > shape[d] || extent > shape[d] - offset) return false;
    }
    return true;
}

/// Elements of a tensor or a box of these extents.
inline std::uint64_t elements(std::span<std::int64_t const> extents) {
    std::uint64_t count = 1;
    for (auto const extent : extents) count *= static_cast<std::uint64_t>(extent);
    return count;
}
inline std::uint64_t elements(Box const& box) { return elements(box.extents); }

/// Calls `use` with (first, count) of each run of neighbouring elements, row-major, in order. The box is inside.
template <class Use>
void for_each_run(Box const& box, std::span<std::int64_t const> shape, Use const& use) {
    if (elements(box) == 0) return;
    std::size_t outer = shape.size(); // dimensions from here on are one run
    std::uint64_t length = 1;
    while (outer > 0) {
        --outer;
        length *= static_cast<std::uint64_t>(box.extents[outer]);
        if (box.extents[outer] != shape[outer]) break;
    }
    std::vector<std::int64_t> at(box.offsets);
    for (;;) {
        std::uint64_t first = 0;
        for (std::size_t d = 0; d < shape.size(); ++d)
            first = first * static_cast<std::uint64_t>(shape[d]) + static_cast<std::uint64_t>(at[d]);
        use(first, length);
        std::size_t d = outer;
        while (d > 0 && ++at[d - 1] == box.offsets[d - 1] + box.extents[d - 1]) {
            at[d - 1] = box.offsets[d - 1];
            --d;
        }
        if (d == 0) return;
    }
}

/// Some runs whose places in the file are near enough to each other to be read at once.
class Piece {
  public:
    struct Run {
        std::uint64_t first, count; ///< elements of the tensor
    };
    static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;
    static constexpr std::uint64_t nearest_bytes = 4096; ///< a gap within a page is read with it anyway

    explicit Piece(std::uint64_t element_bytes)
        : most_(most_bytes / element_bytes), gap_(nearest_bytes / element_bytes) {}

    /// As much of the run as fits; the rest is left in it.
    [[nodiscard]] bool take(Run& run) {
        std::uint64_t const begin = runs_.empty() ? run.first : runs_.front().first;
        if (run.first - end() > gap_ && !runs_.empty()) return false;
        std::uint64_t const room = most_ - std::min(most_, run.first - begin), count = std::min(run.count, room);
        if (count == 0) return false;
        runs_.push_back({run.first, count});
        run = {run.first + count, run.count - count};
        return true;
    }
    [[nodiscard]] std::vector<Run> const& runs() const { return runs_; }
    [[nodiscard]] std::uint64_t begin() const { return runs_.front().first; }
    [[nodiscard]] std::uint64_t end() const { return runs_.empty() ? 0 : runs_.back().first + runs_.back().count; }
    void clear() { runs_.clear(); }

  private:
    std::uint64_t most_, gap_;
    std::vector<Run> runs_;
};

} // namespace detail

} // namespace pentad::io
