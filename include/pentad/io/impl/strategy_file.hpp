// The functions of <pentad/io/strategy_file.hpp>.
#pragma once

#include <pentad/io/strategy_file.hpp>

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/strategy/fields.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace pentad::io::detail {

/// A type's name without its namespace.
constexpr std::string_view short_type(std::string_view type) { return type.substr(type.rfind(':') + 1); }

/// The word of an enumeration at a place. @throws std::invalid_argument, which lists them
template <std::size_t n>
std::size_t word_at(Json const& json, std::string const& where, std::array<std::string_view, n> const& words) {
    auto const found = json.is_string() ? std::find(words.begin(), words.end(), json.get<std::string>()) : words.end();
    if (found == words.end()) {
        std::string list;
        for (auto const word : words) list += (list.empty() ? "\"" : ", \"") + std::string(word) + "\"";
        refuse_json(where, "one of " + list, json);
    }
    return static_cast<std::size_t>(found - words.begin());
}

/// How each kind of field is written, and read at a place in the JSON.
struct StrategyJson {
    template <class T>
        requires(std::is_arithmetic_v<T> || std::same_as<T, std::string>)
    static OrderedJson write(T const& value) {
        return value;
    }
    template <HasWords T>
    static OrderedJson write(T value) {
        return word_of(value);
    }
    static OrderedJson write(model::PieceSet pieces) { return write(list_of(pieces)); }
    template <class T>
    static OrderedJson write(std::vector<T> const& values) {
        auto json = OrderedJson::array();
        for (auto const& value : values) json.push_back(write(value));
        return json;
    }
    static OrderedJson write(std::array<std::string_view, 5> const& axes) { return axes; }
    template <class T>
    static OrderedJson write(std::optional<T> const& value) {
        return value ? write(*value) : OrderedJson();
    }
    static OrderedJson write(model::Optimizer const& optimizer) {
        return std::visit(
            []<class T>(T const& value) {
                OrderedJson json{{"type", short_type(FieldsOf<T>::type)}};
                json.update(write(value));
                return json;
            },
            optimizer);
    }
    template <HasFields T>
    static OrderedJson write(T const& value) {
        auto json = OrderedJson::object();
        for_each_set_field(value,
                           [&](auto const& field) { json[std::string(field.name)] = write(value.*field.member); });
        return json;
    }

    static void read(Json const& json, std::string const& where, bool& value) {
        if (!json.is_boolean()) refuse_json(where, "true or false", json);
        value = json.get<bool>();
    }
    template <std::integral T>
    static void read(Json const& json, std::string const& where, T& value) {
        constexpr auto most = std::min<std::uint64_t>(std::numeric_limits<T>::max(), std::uint64_t{1} << 53);
        value = static_cast<T>(whole_number(json, where, 0, static_cast<std::int64_t>(most)));
    }
    static void read(Json const& json, std::string const& where, double& value) {
        if (!json.is_number()) refuse_json(where, "a number", json);
        value = json.get<double>();
    }
    static void read(Json const& json, std::string const& where, std::string& value) {
        if (!json.is_string()) refuse_json(where, "a text", json);
        value = json.get<std::string>();
    }
    template <HasWords T>
    static void read(Json const& json, std::string const& where, T& value) {
        value = static_cast<T>(word_at(json, where, WordsOf<T>::words));
    }
    static void read(Json const& json, std::string const& where, model::PieceSet& pieces) {
        std::vector<model::Piece> list;
        read(json, where, list);
        pieces = {};
        for (auto const piece : list) pieces.add(piece);
    }
    template <class T>
    static void read(Json const& json, std::string const& where, std::vector<T>& values) {
        if (!json.is_array()) refuse_json(where, "a list", json);
        values.clear();
        for (auto const& one : json) {
            auto const place = where + "[" + std::to_string(values.size()) + "]";
            read(one, place, values.emplace_back());
        }
    }
    static void read(Json const& json, std::string const& where, std::array<std::string_view, 5>& axes) {
        std::string const expected = "the five axes, each once: " + dump(OrderedJson(axis_order));
        if (!json.is_array() || json.size() != axes.size()) refuse_json(where, expected, json);
        for (std::size_t i = 0; i < axes.size(); ++i)
            axes[i] = axis_order[word_at(json[i], where + "[" + std::to_string(i) + "]", axis_order)];
        for (auto const axis : axis_order)
            if (std::find(axes.begin(), axes.end(), axis) == axes.end()) refuse_json(where, expected, json);
    }
    template <class T>
    static void read(Json const& json, std::string const& where, std::optional<T>& value) {
        value.reset();
        if (!json.is_null()) read(json, where, value.emplace());
    }
    template <class... Types>
    static void read(Json const& json, std::string const& where, std::variant<Types...>& value) {
        constexpr std::array<std::string_view, sizeof...(Types)> words{short_type(FieldsOf<Types>::type)...};
        if (!json.is_object()) refuse_json(where, "an object", json);
        auto const type = word_at(member(json, "type", where + ".type"), where + ".type", words);
        std::size_t i = 0;
        auto const take = [&]<class T>(T of) {
            if (i++ == type) read_fields(json, where, of, true), value = of;
        };
        (take(Types()), ...);
    }
    template <HasFields T>
    static void read(Json const& json, std::string const& where, T& value) {
        read_fields(json, where, value, false);
    }

  private:
    template <HasFields T>
    static void read_fields(Json const& json, std::string const& where, T& value, bool has_type) {
        std::vector<std::string_view> words;
        if (has_type) words.push_back("type");
        for_each_field<T>([&](auto const& field) { words.push_back(field.name); });
        std::string const path = where.empty() ? "" : where + ".";
        check_keys(json, where.empty() ? "the file" : where, path, words);
        for_each_field<T>([&](auto const& field) {
            std::string const name(field.name);
            if (json.contains(name)) read(json[name], path + name, value.*field.member);
        });
    }
};

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE std::string to_json(Strategy const& strategy) {
    return detail::dump(detail::StrategyJson::write(strategy), 2) + "\n";
}

PENTAD_INLINE Strategy strategy_from_json(std::string_view text) {
    Strategy strategy;
    detail::StrategyJson::read(detail::parse_object(text), "", strategy);
    return strategy;
}

PENTAD_INLINE Strategy read_strategy(std::filesystem::path const& path) {
    std::string const text = read_file(path, std::uint64_t{1} << 20);
    try {
        return strategy_from_json(text);
    } catch (std::invalid_argument const& error) {
        throw FileError("cannot read the strategy " + path.string() + ": " + error.what());
    }
}

PENTAD_INLINE void write_strategy(std::filesystem::path const& path, Strategy const& strategy) {
    write_file(path, to_json(strategy));
}

} // namespace pentad::io
