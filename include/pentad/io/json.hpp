// All JSON that Pentad reads: objects of bounded depth with no key twice; what is wrong is refused with the
// place and what is expected there, and quoted in part.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/mesh/one_line.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
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
void append_beginning(std::string& text, Json const& value);

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
    bool end_object() override;
    bool end_array() override {
        open_.pop_back();
        return true;
    }
    bool parse_error(std::size_t, std::string const&, Json::exception const& error) override;

    /// @param is_all whether the input ends there: to nlohmann a zero byte is the end of it
    [[nodiscard]] Json result(bool is_all) {
        if (!is_all || !root_.is_object()) refuse_json(whole_, "one JSON object");
        return std::move(root_);
    }

  private:
    static constexpr std::size_t deepest = 64; // to destroy a value is recursive

    Json* add(Json value);
    bool open(Json value);

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
/// The object of a file, which is read piece by piece.
Json parse_object(File const& file, TakeObject const& take);

/// A member that must be there.
inline Json const& member(Json const& object, std::string_view key, std::string_view where) {
    auto const found = object.find(key);
    if (found == object.end()) refuse_json(std::string(where), "a value, and there is none");
    return *found;
}

std::int64_t whole_number(Json const& value, std::string const& where, std::int64_t least, std::int64_t most);

inline bool flag(Json const& value, std::string const& where) {
    if (!value.is_boolean()) refuse_json(where, "true or false", value);
    return value.get<bool>();
}

/// A text that can be printed, as a name.
std::string text(Json const& value, std::string const& where);

/// Requires an object whose keys are among `words`. @param path of the object, empty or ending in a dot
void check_keys(Json const& object, std::string const& where, std::string const& path,
                std::span<std::string_view const> words);

} // namespace pentad::io::detail

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/json.hpp>
#endif
