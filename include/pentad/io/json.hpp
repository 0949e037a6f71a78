// Room: io. Small JSON files that people write: read in their order, refused with the place and what is expected there.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::io::detail {

using Json = nlohmann::ordered_json;

/// Throws std::invalid_argument: "links[1].devices: expected a whole number from 1 to 8, not -1".
[[noreturn]] inline void refuse_json(std::string const& where, std::string const& expected) {
    throw std::invalid_argument(where + ": expected " + expected);
}
[[noreturn]] inline void refuse_json(std::string const& where, std::string const& expected, Json const& found) {
    std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    refuse_json(where, expected + ", not " + text);
}

/// The object that is the whole text, with no key twice.
inline Json parse_object(std::string_view text) {
    std::vector<std::set<std::string>> keys; // of each open object
    auto const notice = [&](int, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        if (event == Json::parse_event_t::object_end) keys.pop_back();
        if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
            refuse_json("'" + parsed.get<std::string>() + "'", "once in an object");
        return true;
    };
    Json json;
    try {
        json = Json::parse(text, notice);
    } catch (Json::exception const& error) {
        std::string const what = error.what(); // "[json.exception...] parse error at line 1, column 9: ..."
        auto const at = what.find("line ");
        throw std::invalid_argument(at == std::string::npos ? what.substr(what.find("] ") + 2) : what.substr(at));
    }
    if (!json.is_object()) refuse_json("the file", "one JSON object");
    return json;
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

inline std::string text(Json const& value, std::string const& where) {
    if (!value.is_string()) refuse_json(where, "a text", value);
    return value.get<std::string>();
}

} // namespace pentad::io::detail
