// The fields of a config.json, each read once by name; what nobody asked for is refused in the end.
#pragma once

#include <pentad/io/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::io::detail {

/// The text with Infinity, -Infinity and NaN, which Python writes though JSON has no such numbers, in quotes: then they
/// are refused only where a size is.
inline std::string with_quoted_infinities(std::string_view text) {
    std::string result;
    bool in_text = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        std::string_view word = text.substr(at, in_text && text[at] == '\\' ? 2 : 1);
        if (!in_text)
            for (std::string_view const other : {"Infinity", "-Infinity", "NaN"})
                if (text.substr(at).starts_with(other)) word = other;
        if (word == "\"") in_text = !in_text;
        bool const quote = !in_text && word.size() > 1;
        result += (quote ? "\"" : "") + std::string(word) + (quote ? "\"" : "");
        at += word.size() - 1;
    }
    return result;
}

/// A field that is null counts as absent, as in Python.
class ConfigFields {
  public:
    explicit ConfigFields(Json const& json) : json_(json) {}

    [[nodiscard]] bool has(std::string const& key) {
        known_.insert(key);
        auto const found = json_.find(key);
        return found != json_.end() && !found->is_null();
    }
    /// A value or null.
    [[nodiscard]] bool is_there(std::string const& key) const { return json_.contains(key); }
    [[nodiscard]] Json const& at(std::string const& key) {
        known_.insert(key);
        return json_[key];
    }
    [[nodiscard]] std::size_t whole(std::string const& key, std::int64_t least, std::int64_t most) {
        known_.insert(key);
        return static_cast<std::size_t>(whole_number(member(json_, key, key), key, least, most));
    }
    [[nodiscard]] std::size_t size(std::string const& key, std::int64_t most = 1 << 24) { return whole(key, 1, most); }
    [[nodiscard]] std::size_t size_or(std::string const& key, std::size_t fallback) {
        return has(key) ? size(key) : fallback;
    }
    [[nodiscard]] std::size_t whole_or(std::string const& key, std::size_t fallback, std::int64_t least,
                                       std::int64_t most) {
        return has(key) ? whole(key, least, most) : fallback;
    }
    [[nodiscard]] bool flag_or(std::string const& key, bool fallback) {
        return has(key) ? flag(json_[key], key) : fallback;
    }
    [[nodiscard]] double number_or(std::string const& key, double fallback, double least, double most) {
        return has(key) ? number(json_[key], key, least, most) : fallback;
    }
    [[nodiscard]] std::string text_or(std::string const& key, std::string const& fallback) {
        return has(key) ? text(json_[key], key) : fallback;
    }
    /// That a size divides another. @throws std::invalid_argument, which ends with `otherwise`
    void require_divisor(std::string const& key, std::size_t value, std::string const& of_key, std::size_t of,
                         std::string const& otherwise = "") const {
        if (value == 0 || of % value != 0)
            refuse_json(key, "a divisor of " + of_key + " = " + std::to_string(of) + otherwise + ", not " +
                                 std::to_string(value));
    }
    /// A field of which only this value makes a model that the library has.
    template <class T>
    void require(std::string const& key, T const& only) {
        if (has(key) && json_[key] != Json(only))
            refuse_json(key, Json(only).dump() + ", the only value that is supported", json_[key]);
    }
    /// Fields that change nothing of the model: how it was made, is stored, or generates text.
    void neutral(std::span<char const* const> keys) { known_.insert(keys.begin(), keys.end()); }
    void neutral(std::initializer_list<char const*> keys) { known_.insert(keys.begin(), keys.end()); }
    /// A field that no family of its name reads, with the value that turns off what it stands for elsewhere.
    void off(std::string const& key, Json const& value) {
        if (!known_.contains(key)) require(key, value);
    }
    /// A field that no family of its name reads, and that nothing in Pentad could obey. @throws std::invalid_argument
    void refuse(std::string const& key, std::string const& why) {
        if (!known_.contains(key) && has(key)) throw std::invalid_argument(quoted_key("", key) + ": " + why);
    }
    /// @throws std::invalid_argument with the names of all fields that are left
    void finish() const {
        std::vector<std::string> left;
        for (auto const& [key, value] : json_.items())
            if (!known_.contains(key) && !value.is_null()) left.push_back(key);
        refuse_unknown("", left);
    }
    /// @throws std::invalid_argument where there are names of fields that are not known
    static void refuse_unknown(std::string const& path, std::vector<std::string> const& names) {
        if (names.empty()) return;
        bool const is_one = names.size() == 1;
        std::size_t const shown = std::min(names.size(), most_names);
        std::string text;
        for (std::size_t i = 0; i < shown; ++i) {
            bool const is_last = i + 1 == names.size();
            text += (i == 0 ? "" : is_last ? " and " : ", ") + quoted_key(path, names[i]);
        }
        if (shown < names.size()) text += " and " + std::to_string(names.size() - shown) + " more";
        throw std::invalid_argument(
            is_one ? "the field " + text + " is not known, and may change the model: remove it if it does not"
                   : "the fields " + text + " are not known, and may change the model: remove those that do not");
    }

    static double number(Json const& value, std::string const& where, double least, double most) {
        if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
            refuse_json(where, "a number from " + Json(least).dump() + " to " + Json(most).dump(), value);
        return value.get<double>();
    }

  private:
    static constexpr std::size_t most_names = 60;

    Json const& json_;
    std::set<std::string> known_;
};

} // namespace pentad::io::detail
