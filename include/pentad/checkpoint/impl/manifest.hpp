// The functions of <pentad/checkpoint/manifest.hpp>.
#pragma once

#include <pentad/checkpoint/manifest.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/one_line.hpp>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace pentad::checkpoint::detail {

PENTAD_INLINE Checksum checksum_of(Json const& value, std::string const& where) {
    auto const sum = parse_checksum(io::detail::text(value, where));
    if (!sum) io::detail::refuse_json(where, "16 hexadecimal digits", value);
    return *sum;
}

PENTAD_INLINE Json const& list_of(Json const& object, std::string_view key) {
    auto const& list = io::detail::member(object, key, key);
    if (!list.is_array()) io::detail::refuse_json(std::string(key), "a list", list);
    return list;
}

PENTAD_INLINE OrderedJson json_of(StoredFile const& file) {
    OrderedJson json{{"name", file.name},
                     {"bytes", file.bytes},
                     {"header", checksum_text(file.header)},
                     {"pieces", OrderedJson::array()}};
    for (auto const& piece : file.pieces) {
        OrderedJson blocks = OrderedJson::array();
        for (auto const sum : piece.blocks) blocks.push_back(checksum_text(sum));
        json["pieces"].push_back({{"tensor", piece.tensor},
                                  {"state", piece.state},
                                  {"type", piece.type},
                                  {"offsets", piece.piece.box.offsets},
                                  {"extents", piece.piece.box.extents},
                                  {"range", {piece.piece.begin, piece.piece.end}},
                                  {"blocks", std::move(blocks)}});
    }
    return json;
}

PENTAD_INLINE std::vector<std::int64_t> sizes(Json const& value, std::string const& where) {
    if (!value.is_array() || value.size() > 8) io::detail::refuse_json(where, "at most 8 whole numbers", value);
    std::vector<std::int64_t> numbers;
    for (auto const& number : value) numbers.push_back(io::detail::whole_number(number, where, 0, largest));
    return numbers;
}

PENTAD_INLINE StoredPiece piece_of(Json const& json) {
    using io::detail::member, io::detail::refuse_json;
    StoredPiece stored;
    stored.tensor = io::detail::text(member(json, "tensor", "tensor"), "tensor");
    std::string const where = io::detail::shown(stored.tensor);
    stored.state = io::detail::text(member(json, "state", where + ": state"), where + ": state");
    stored.type = io::detail::text(member(json, "type", where + ": type"), where + ": type");
    stored.piece.box.offsets = sizes(member(json, "offsets", where + ": offsets"), where + ": offsets");
    stored.piece.box.extents = sizes(member(json, "extents", where + ": extents"), where + ": extents");
    auto const range = sizes(member(json, "range", where + ": range"), where + ": range");
    auto const bytes = io::detail::tensor_bytes(stored.type, stored.piece.box.extents);
    if (!bytes) refuse_json(where, "a known type, and extents that memory can hold");
    if (range.size() != 2 || range[0] > range[1] ||
        static_cast<std::uint64_t>(range[1]) > io::detail::elements(stored.piece.box))
        refuse_json(where + ": range", "the first element and the end, inside of the box");
    stored.piece.begin = static_cast<std::uint64_t>(range[0]);
    stored.piece.end = static_cast<std::uint64_t>(range[1]);
    auto const& blocks = list_of(json, "blocks");
    for (auto const& block : blocks) stored.blocks.push_back(checksum_of(block, where + ": blocks"));
    if (stored.blocks.size() != (stored.bytes() + block_bytes - 1) / block_bytes)
        refuse_json(where + ": blocks", "a checksum for each MiB");
    return stored;
}

PENTAD_INLINE StoredFile file_of(Json const& json) {
    using io::detail::member, io::detail::refuse_json;
    StoredFile file;
    file.name = io::detail::text(member(json, "name", "name"), "name");
    if (file.name.empty() || file.name.starts_with('.') || file.name.find('/') != file.name.npos)
        refuse_json("name", "the name of a file beside the manifest", json["name"]);
    file.bytes =
        static_cast<std::uint64_t>(io::detail::whole_number(member(json, "bytes", "bytes"), "bytes", 0, largest));
    file.header = checksum_of(member(json, "header", "header"), "header");
    for (auto const& piece : list_of(json, "pieces")) file.pieces.push_back(piece_of(piece));
    return file;
}

} // namespace pentad::checkpoint::detail

namespace pentad::checkpoint {

PENTAD_INLINE std::vector<std::string> names_in_file(std::span<StoredPiece const> pieces) {
    std::map<std::string, int> seen;
    std::vector<std::string> names;
    for (auto const& piece : pieces) {
        auto const name = piece.name();
        int const number = seen[name]++;
        names.push_back(number == 0 ? name : name + "/" + std::to_string(number));
    }
    return names;
}

PENTAD_INLINE std::optional<std::string> cover_fault(Manifest const& manifest) {
    std::map<std::string_view, io::NamedShape const*> shapes;
    for (auto const& tensor : manifest.tensors)
        if (!shapes.emplace(tensor.name, &tensor).second) return "it names tensor " + tensor.name + " twice";
    std::map<std::pair<std::string_view, std::string_view>, std::vector<StoredPiece const*>> states;
    for (auto const& tensor : manifest.tensors) states[{tensor.name, weight_state}];
    for (auto const& file : manifest.files)
        for (auto const& piece : file.pieces) {
            auto const shape = shapes.find(piece.tensor);
            if (shape == shapes.end()) return file.name + " has " + piece.name() + ", which is no tensor of it";
            if (!io::detail::is_inside(piece.piece.box, shape->second->shape))
                return file.name + " has a part of " + piece.name() + " that is not inside of it";
            states[{piece.tensor, piece.state}].push_back(&piece);
        }
    for (auto& [key, pieces] : states) {
        std::string const name = std::string(key.first) + "/" + std::string(key.second);
        auto const order = [](StoredPiece const* piece) {
            auto const& [box, begin, end] = piece->piece;
            return std::tie(box.offsets, box.extents, begin, end);
        };
        std::sort(pieces.begin(), pieces.end(), [&](auto* a, auto* b) { return order(a) < order(b); });
        // The ranges of a box one after the other, then the boxes.
        std::vector<io::Box const*> boxes;
        std::uint64_t elements = 0, end = 0;
        for (auto const* piece : pieces) {
            auto const& [box, begin, its_end] = piece->piece;
            if (piece->type != pieces.front()->type) return "the parts of " + name + " are of different types";
            if (boxes.empty() || boxes.back()->offsets != box.offsets || boxes.back()->extents != box.extents) {
                if (!boxes.empty() && end != io::detail::elements(*boxes.back()))
                    return "elements of " + name + " are missing";
                boxes.push_back(&box);
                elements += io::detail::elements(box);
                end = 0;
            }
            if (begin != end) return "elements of " + name + (begin > end ? " are missing" : " are there twice");
            end = its_end;
        }
        if (!boxes.empty() && end != io::detail::elements(*boxes.back())) return "elements of " + name + " are missing";
        if (elements < io::detail::elements(shapes.at(key.first)->shape)) return "elements of " + name + " are missing";
        for (std::size_t i = 0; i < boxes.size(); ++i)
            for (std::size_t j = i + 1; j < boxes.size(); ++j)
                if (detail::overlap(*boxes[i], *boxes[j])) return "elements of " + name + " are there twice";
    }
    return std::nullopt;
}

PENTAD_INLINE std::string text_of(Manifest const& manifest) {
    detail::OrderedJson tensors = detail::OrderedJson::array(), files = detail::OrderedJson::array();
    for (auto const& tensor : manifest.tensors) tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
    for (auto const& file : manifest.files) files.push_back(detail::json_of(file));
    std::string const body = io::detail::dump(detail::OrderedJson{{"format", detail::format},
                                                                  {"step", manifest.step},
                                                                  {"run", manifest.run},
                                                                  {"tensors", std::move(tensors)},
                                                                  {"files", std::move(files)}});
    return "{\"checksum\":\"" + checksum_text(checksum(body)) + "\",\"manifest\":" + body + "}\n";
}

PENTAD_INLINE Manifest manifest_of(std::string_view text) {
    using io::detail::member;
    constexpr std::string_view start = "{\"checksum\":\"", middle = "\",\"manifest\":", end = "}\n";
    constexpr std::size_t begin = start.size() + 16 + middle.size();
    if (text.size() < begin + end.size() || !text.starts_with(start) ||
        text.substr(start.size() + 16, middle.size()) != middle || !text.ends_with(end))
        throw std::invalid_argument("it is no manifest of a checkpoint, or is damaged");
    auto const body = text.substr(begin, text.size() - begin - end.size());
    if (parse_checksum(text.substr(start.size(), 16)) != checksum(body))
        throw std::invalid_argument("it is damaged: its checksum is not that of its text");
    auto const json = io::detail::parse_object(body, "the manifest");
    if (auto const format = io::detail::text(member(json, "format", "format"), "format"); format != detail::format)
        throw std::invalid_argument("its format is '" + one_line(format) + "', and '" + detail::format + "' is read");
    Manifest manifest;
    manifest.step = io::detail::whole_number(member(json, "step", "step"), "step", 0, detail::largest);
    manifest.run = member(json, "run", "run");
    if (!manifest.run.is_object()) io::detail::refuse_json("run", "an object", manifest.run);
    for (auto const& tensor : detail::list_of(json, "tensors"))
        manifest.tensors.push_back({io::detail::text(member(tensor, "name", "tensors: name"), "tensors: name"),
                                    detail::sizes(member(tensor, "shape", "tensors: shape"), "tensors: shape")});
    for (auto const& [name, shape] : manifest.tensors)
        if (!io::detail::tensor_bytes("F64", shape)) io::detail::refuse_json(name, "a shape that memory can hold");
    for (auto const& file : detail::list_of(json, "files")) manifest.files.push_back(detail::file_of(file));
    if (auto const fault = cover_fault(manifest)) throw std::invalid_argument(*fault);
    return manifest;
}

} // namespace pentad::checkpoint
