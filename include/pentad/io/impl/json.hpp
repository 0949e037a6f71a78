// The functions of <pentad/io/json.hpp>.
#pragma once

#include <pentad/io/json.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/nearest_word.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

namespace pentad::io::detail {

PENTAD_INLINE void append_beginning(std::string& text, Json const& value) {
    constexpr std::size_t enough = 64;
    auto const append_text = [&](std::string const& whole) {
        text += Json(whole.substr(0, enough)).dump(-1, ' ', false, Json::error_handler_t::replace);
    };
    if (value.is_string()) {
        append_text(value.get_ref<std::string const&>());
    } else if (value.is_structured()) {
        text += value.is_array() ? '[' : '{';
        bool is_first = true;
        for (auto const& [key, element] : value.items()) {
            if (text.size() > enough) return;
            if (!std::exchange(is_first, false)) text += ',';
            if (value.is_object()) append_text(key), text += ':';
            append_beginning(text, element);
        }
        text += value.is_array() ? ']' : '}';
    } else {
        text += value.dump();
    }
}

PENTAD_INLINE bool JsonBuilder::end_object() {
    Json const& object = *open_.back();
    open_.pop_back();
    if (take_ && take_(open_.size(), object) && !open_.empty() && open_.back()->is_array())
        open_.back()->get_ref<Json::array_t&>().pop_back();
    return true;
}

PENTAD_INLINE bool JsonBuilder::parse_error(std::size_t, std::string const&, Json::exception const& error) {
    // "[json.exception...] parse error at line 1, column 9: ...", with all of the number or text that was read last
    std::string const what = error.what();
    auto const line = what.find("line "), reason = what.find("] ") + 2;
    throw std::invalid_argument(one_line(what.substr(line == std::string::npos ? reason : line), 160));
}

PENTAD_INLINE Json* JsonBuilder::add(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    auto const [place, is_new] = parent.emplace(key_, std::move(value));
    if (!is_new) refuse_json(quoted_key("", key_), "once in an object");
    return &*place;
}

PENTAD_INLINE bool JsonBuilder::open(Json value) {
    if (open_.size() == deepest) refuse_json(whole_, "lists and objects at most " + std::to_string(deepest) + " deep");
    open_.push_back(add(std::move(value)));
    return true;
}

PENTAD_INLINE Json parse_object(File const& file, TakeObject const& take) {
    struct Close {
        void operator()(std::FILE* stream) const { std::fclose(stream); }
    };
    int const descriptor = ::dup(file.descriptor());
    std::unique_ptr<std::FILE, Close> const stream(descriptor < 0 ? nullptr : ::fdopen(descriptor, "r"));
    if (!stream) throw FileError("read", file.path(), errno);
    JsonBuilder builder("the file", take);
    try {
        (void)Json::sax_parse(stream.get(), &builder);
    } catch (std::invalid_argument const&) {
        if (std::ferror(stream.get()) != 0) throw FileError("read", file.path(), EIO);
        throw;
    }
    return builder.result(std::fgetc(stream.get()) == EOF);
}

PENTAD_INLINE std::int64_t whole_number(Json const& value, std::string const& where, std::int64_t least,
                                        std::int64_t most) {
    // A number beyond int64 wraps to a negative one; least is 0 or more.
    if (!value.is_number_integer() || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
        refuse_json(where, "a whole number from " + std::to_string(least) + " to " + std::to_string(most), value);
    return value.get<std::int64_t>();
}

PENTAD_INLINE std::string text(Json const& value, std::string const& where) {
    if (!value.is_string()) refuse_json(where, "a text", value);
    auto text = value.get<std::string>();
    if (!is_printable(text)) refuse_json(where, "a text without control characters", value);
    return text;
}

PENTAD_INLINE void check_keys(Json const& object, std::string const& where, std::string const& path,
                              std::span<std::string_view const> words) {
    if (!object.is_object()) refuse_json(where, "an object", object);
    for (auto const& [key, value] : object.items()) {
        auto const nearest = nearest_word(std::string_view(key).substr(0, 60), words);
        if (nearest != key)
            refuse_json(quoted_key(path, key), "another key: did you mean " + std::string(nearest) + "?");
    }
}

} // namespace pentad::io::detail
