// All JSON that Pentad reads: objects of bounded depth with no key twice; what is wrong is refused with the
// place and what is expected there, and quoted in part.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/mesh/one_line.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pentad::io::detail {

/// What is read. Not ordered_json, which compares a key with all others of its object.
using Json = nlohmann::json;
/// What is written.
using OrderedJson = nlohmann::ordered_json;

/// As text, whatever the names in it are.
inline std::string dump(OrderedJson const& json, int indent = -1) {
    return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

/// Adds the beginning of a value to a text that a message quotes, not all of it.
inline void append_beginning(std::string& text, Json const& value) {
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

/// Throws std::invalid_argument: "links[1].devices: expected a whole number from 1 to 8, not -1".
[[noreturn]] inline void refuse_json(std::string const& where, std::string const& expected) {
    throw std::invalid_argument(where + ": expected " + expected);
}
[[noreturn]] inline void refuse_json(std::string const& where, std::string const& expected, Json const& found) {
    std::string text;
    append_beginning(text, found);
    refuse_json(where, expected + ", not " + one_line(text));
}
/// "'links.device'"
inline std::string quoted_key(std::string const& path, std::string_view key) {
    return "'" + path + one_line(key) + "'";
}

/// Is given each object at its end, and its depth (0: the whole); where it returns true, an object in a list is
/// dropped.
using TakeObject = std::function<bool(std::size_t depth, Json const& object)>;

/// Builds the value from nlohmann's events. Its own builder that asks a callback compares each object with all others
/// of its list.
class JsonBuilder final : public nlohmann::json_sax<Json> {
  public:
    /// @param whole what messages call the object
    explicit JsonBuilder(std::string whole, TakeObject take = {}) : whole_(std::move(whole)), take_(std::move(take)) {}

    bool null() override { return add(nullptr) != nullptr; }
    bool boolean(bool value) override { return add(value) != nullptr; }
    bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
    bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
    bool number_float(number_float_t value, string_t const&) override { return add(value) != nullptr; }
    bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
    bool binary(binary_t&) override { return false; } // never in text
    bool start_object(std::size_t) override { return open(Json::object()); }
    bool start_array(std::size_t) override { return open(Json::array()); }
    bool key(string_t& value) override {
        key_ = std::move(value);
        return true;
    }
    bool end_object() override {
        Json const& object = *open_.back();
        open_.pop_back();
        if (take_ && take_(open_.size(), object) && !open_.empty() && open_.back()->is_array())
            open_.back()->get_ref<Json::array_t&>().pop_back();
        return true;
    }
    bool end_array() override {
        open_.pop_back();
        return true;
    }
    bool parse_error(std::size_t, std::string const&, Json::exception const& error) override {
        // "[json.exception...] parse error at line 1, column 9: ...", with all of the number or text that was read last
        std::string const what = error.what();
        auto const line = what.find("line "), reason = what.find("] ") + 2;
        throw std::invalid_argument(one_line(what.substr(line == std::string::npos ? reason : line), 160));
    }

    /// @param is_all whether the input ends there: to nlohmann a zero byte is the end of it
    [[nodiscard]] Json result(bool is_all) {
        if (!is_all || !root_.is_object()) refuse_json(whole_, "one JSON object");
        return std::move(root_);
    }

  private:
    static constexpr std::size_t deepest = 64; // to destroy a value is recursive

    Json* add(Json value) {
        if (open_.empty()) return &(root_ = std::move(value));
        Json& parent = *open_.back();
        if (parent.is_array()) return &parent.emplace_back(std::move(value));
        auto const [place, is_new] = parent.emplace(key_, std::move(value));
        if (!is_new) refuse_json(quoted_key("", key_), "once in an object");
        return &*place;
    }
    bool open(Json value) {
        if (open_.size() == deepest)
            refuse_json(whole_, "lists and objects at most " + std::to_string(deepest) + " deep");
        open_.push_back(add(std::move(value)));
        return true;
    }

    std::string whole_;
    TakeObject take_;
    Json root_;
    std::vector<Json*> open_;
    std::string key_;
};

/// The object that is all of a text.
inline Json parse_object(std::string_view text, std::string const& whole = "the file") {
    JsonBuilder builder(whole);
    (void)Json::sax_parse(text, &builder);
    return builder.result(text.find('\0') == text.npos);
}
/// The same of a file, which is read piece by piece.
inline Json parse_object(File const& file, TakeObject const& take) {
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

/// A member that must be there.
inline Json const& member(Json const& object, std::string_view key, std::string_view where) {
    auto const found = object.find(key);
    if (found == object.end()) refuse_json(std::string(where), "a value, and there is none");
    return *found;
}

inline std::int64_t whole_number(Json const& value, std::string const& where, std::int64_t least, std::int64_t most) {
    // What does not fit an int64 wraps to a negative one; least is 0 or more.
    if (!value.is_number_integer() || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
        refuse_json(where, "a whole number from " + std::to_string(least) + " to " + std::to_string(most), value);
    return value.get<std::int64_t>();
}

inline bool flag(Json const& value, std::string const& where) {
    if (!value.is_boolean()) refuse_json(where, "true or false", value);
    return value.get<bool>();
}

/// A text that can be printed, as a name.
inline std::string text(Json const& value, std::string const& where) {
    if (!value.is_string()) refuse_json(where, "a text", value);
    auto text = value.get<std::string>();
    if (!is_printable(text)) refuse_json(where, "a text without control characters", value);
    return text;
}

} // namespace pentad::io::detail
