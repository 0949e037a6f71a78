// The functions of <pentad/io/safetensors.hpp>.
#pragma once

#include <pentad/io/safetensors.hpp>

#include <pentad/io/json.hpp>
#include <pentad/mesh/inline.hpp>

#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>

namespace pentad::io::detail {

PENTAD_INLINE std::uint64_t element_bytes(std::string_view type) {
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

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE SafetensorsWriter::SafetensorsWriter(std::filesystem::path const& path, std::vector<TensorEntry> tensors,
                                                   std::map<std::string, std::string> const& metadata)
    : file_(path), tensors_(std::move(tensors)) {
    file_.write(safetensors_header(tensors_, metadata));
    std::uint64_t end = 0;
    for (auto const& tensor : tensors_) ends_.push_back(end += detail::tensor_bytes(tensor.type, tensor.shape).value());
}

PENTAD_INLINE void SafetensorsWriter::append_bytes(std::span<std::byte const> bytes) {
    skip_complete();
    if (bytes.size() > left()) throw std::logic_error("more data than tensors for " + file_.path().string());
    file_.write(bytes.data(), bytes.size());
    written_ += bytes.size();
    flushes_.after(bytes.size(), file_);
}

PENTAD_INLINE SafetensorsReader::SafetensorsReader(std::filesystem::path const& path)
    : file_(File::open_for_reading(path)) {
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

PENTAD_INLINE auto SafetensorsReader::read_entry(std::string const& name, detail::Json const& value) const -> Placed {
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
        refuse(tensor + " takes " + std::to_string(*bytes) + " bytes, and its place is from " + std::to_string(begin) +
               " to " + std::to_string(end));
    return {begin, end, std::move(entry)};
}

PENTAD_INLINE void SafetensorsReader::place(std::vector<Placed> placed, std::uint64_t size) {
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

} // namespace pentad::io

namespace pentad::io::detail {

PENTAD_INLINE std::optional<std::uint64_t> tensor_bytes(std::string_view type, std::span<std::int64_t const> shape) {
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

PENTAD_INLINE void check_writable(std::span<TensorEntry const> tensors) {
    std::set<std::string_view> names;
    for (auto const& tensor : tensors) {
        auto const refuse = [&](char const* why) { throw std::invalid_argument("tensor " + shown(tensor.name) + why); };
        if (!tensor_bytes(tensor.type, tensor.shape)) refuse(" has a type or a shape that safetensors cannot hold");
        if (tensor.name == "__metadata__" || !names.insert(tensor.name).second)
            refuse(" is given twice, or has the name that the format keeps for itself");
        if (!is_printable(tensor.name)) refuse(" has a name that is not UTF-8, or has control characters");
    }
}

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE std::string safetensors_header(std::span<TensorEntry const> tensors,
                                             std::map<std::string, std::string> const& metadata) {
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

PENTAD_INLINE void SafetensorsReader::read_bytes(std::string_view name, std::span<std::byte> into,
                                                 std::uint64_t first) const {
    auto const [begin, end] = places_[position(name)];
    if (first > end - begin || into.size() > end - begin - first)
        refuse("tensor " + detail::shown(name) + " has " + std::to_string(end - begin) + " bytes");
    file_.read_at(data_ + begin + first, into.data(), into.size());
}

PENTAD_INLINE void SafetensorsReader::read_metadata(detail::Json const& value) {
    if (!value.is_object()) refuse("its __metadata__ is not an object");
    for (auto const& [key, text] : value.items()) {
        if (!text.is_string()) refuse("its __metadata__ has a value that is not a text: " + detail::shown(key));
        metadata_[key] = text.template get<std::string>();
    }
}

} // namespace pentad::io
