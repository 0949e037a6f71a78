#include "requests.hpp"

#include <pentad/mesh/one_line.hpp>
#include <pentad/program/exit_status.hpp>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

namespace pentad_generate {

namespace {

using Json = nlohmann::ordered_json;
using pentad::program::BadInput;

/// The value of a key as a T. @throws std::invalid_argument where it is none
template <class T>
void take(T& into, std::string const& key, Json const& value) {
    auto const refuse = [&](char const* what) {
        throw std::invalid_argument(key + " = " + pentad::one_line(value.dump()) + " is no " + what);
    };
    if constexpr (std::is_same_v<T, std::string>) {
        if (!value.is_string()) refuse("text");
        into = value.get<std::string>();
    } else if constexpr (std::is_floating_point_v<T>) {
        if (!value.is_number()) refuse("number");
        into = value.get<T>();
    } else if constexpr (std::is_integral_v<T>) {
        if (!value.is_number_integer() || (std::is_unsigned_v<T> && !value.is_number_unsigned()))
            refuse(std::is_unsigned_v<T> ? "whole number of at least 0" : "whole number");
        if (value > std::int64_t{1} << 40) refuse("number of this size");
        into = value.get<T>();
    } else {
        if (!value.is_array()) refuse("list");
        into.clear();
        for (auto const& item : value) take(into.emplace_back(), key, item);
    }
}

Request read_request(Json const& line, Options const& options, TextForm const& form, std::size_t length) {
    Request request{.writing = {.most_tokens = options.max_tokens, .how = options.how}, .stops = options.stops};
    auto& [writing, stops, id] = request;
    if (!options.goes_on) writing.stop_tokens = form.ends;
    if (!line.is_object()) throw std::invalid_argument("it is no object of JSON (--text: lines are prompts)");
    bool has_prompt = false, has_tokens = false;
    for (auto const& [key, value] : line.items()) {
        if (key == "prompt") {
            std::string text;
            take(text, key, value);
            if (!form.exists())
                throw std::invalid_argument("prompt: the model comes without a tokenizer, and its vocabulary is not "
                                            "that of bytes: give \"tokens\"");
            writing.prompt = form.encode(text);
            has_prompt = true;
        } else if (key == "tokens") {
            take(writing.prompt, key, value);
            has_tokens = true;
        } else if (key == "stop") {
            stops.clear();
            if (value.is_string())
                stops.push_back(value.get<std::string>());
            else
                take(stops, key, value);
        } else if (key == "stop_tokens")
            take(writing.stop_tokens, key, value);
        else if (key == "max_tokens")
            take(writing.most_tokens, key, value);
        else if (key == "temperature")
            take(writing.how.temperature, key, value);
        else if (key == "top_k")
            take(writing.how.top_k, key, value);
        else if (key == "top_p")
            take(writing.how.top_p, key, value);
        else if (key == "min_p")
            take(writing.how.min_p, key, value);
        else if (key == "repetition_penalty")
            take(writing.how.repetition_penalty, key, value);
        else if (key == "seed")
            take(writing.how.seed, key, value);
        else if (key == "log_probabilities")
            take(writing.how.log_probabilities, key, value);
        else if (key == "priority")
            take(writing.priority, key, value);
        else if (key == "id")
            id = value;
        else
            throw std::invalid_argument("it has '" + key + "', which is none of its keys (--help)");
    }
    if (has_prompt == has_tokens) throw std::invalid_argument("it has a prompt or tokens, one of them");
    if (writing.prompt.empty()) throw std::invalid_argument("its prompt is empty");
    if (std::find(stops.begin(), stops.end(), "") != stops.end())
        throw std::invalid_argument("a text of stop is empty");
    if (auto const why = writing.how.refusal(); !why.empty()) throw std::invalid_argument(why);
    if (writing.prompt.size() >= length)
        throw std::invalid_argument("its prompt has " + std::to_string(writing.prompt.size()) +
                                    " tokens, and a sequence " + std::to_string(length) + " (--length)");
    writing.most_tokens = std::min(writing.most_tokens, length - writing.prompt.size());
    return request;
}

} // namespace

TextForm bytes_form() {
    return {.encode =
                [](std::string_view text) {
                    return std::vector<std::int32_t>(reinterpret_cast<unsigned char const*>(text.data()),
                                                     reinterpret_cast<unsigned char const*>(text.data()) + text.size());
                },
            .decode =
                [](std::span<std::int32_t const> tokens) {
                    std::string text;
                    for (auto const token : tokens) text += static_cast<char>(token);
                    return text;
                }};
}

std::vector<Request> read_requests(std::string_view lines, Options const& options, TextForm const& form,
                                   std::size_t length) {
    std::vector<Request> requests;
    for (std::size_t number = 1; !lines.empty(); ++number) {
        auto const end = std::min(lines.find('\n'), lines.size());
        auto const line = lines.substr(0, end);
        lines.remove_prefix(std::min(end + 1, lines.size()));
        if (line.find_first_not_of(" \t\r") == line.npos) continue;
        try {
            if (options.as_text)
                requests.push_back(read_request({{"prompt", std::string(line)}}, options, form, length));
            else
                requests.push_back(read_request(Json::parse(line), options, form, length));
        } catch (nlohmann::json::exception const&) {
            throw BadInput("line " + std::to_string(number) + " of --prompts is no JSON: " +
                           pentad::one_line(std::string(line.substr(0, 60))) + " (--text: lines are prompts)");
        } catch (std::invalid_argument const& error) {
            throw BadInput("line " + std::to_string(number) + " of --prompts: " + error.what());
        }
    }
    if (requests.empty()) throw BadInput("--prompts " + options.prompts + " has no request");
    return requests;
}

std::string packed(std::vector<Request> const& requests) {
    Json all = Json::array();
    for (auto const& [writing, stops, id] : requests) {
        auto const& how = writing.how;
        all.push_back({writing.prompt, writing.most_tokens, writing.stop_tokens, writing.priority, stops, id,
                       Json::array({how.repetition_penalty, how.temperature, how.top_k, how.top_p, how.min_p, how.seed,
                                    how.log_probabilities})});
    }
    auto const bytes = Json::to_msgpack(all); // numbers as they are, and texts of any bytes
    return {bytes.begin(), bytes.end()};
}

std::vector<Request> unpacked(std::string const& text) {
    std::vector<Request> requests;
    for (auto const& one : Json::from_msgpack(text)) {
        auto& [writing, stops, id] = requests.emplace_back();
        one[0].get_to(writing.prompt), one[1].get_to(writing.most_tokens), one[2].get_to(writing.stop_tokens);
        one[3].get_to(writing.priority), one[4].get_to(stops);
        id = one[5];
        auto const& how = one[6];
        how[0].get_to(writing.how.repetition_penalty), how[1].get_to(writing.how.temperature);
        how[2].get_to(writing.how.top_k), how[3].get_to(writing.how.top_p), how[4].get_to(writing.how.min_p);
        how[5].get_to(writing.how.seed), how[6].get_to(writing.how.log_probabilities);
    }
    return requests;
}

std::string answer_line(std::size_t number, Request const& request, Answer const& answer, TextForm const& form) {
    Json line{{"index", number}};
    if (!request.id.is_null()) line["id"] = request.id;
    if (form.exists()) line["text"] = answer.text;
    auto& tokens = line["tokens"] = Json::array();
    for (auto const& token : answer.tokens) tokens.push_back(token.chosen.token);
    if (request.writing.how.log_probabilities > 0) {
        auto& all = line["log_probabilities"] = Json::array();
        for (auto const& token : answer.tokens) {
            Json likely = Json::array();
            for (auto const& [other, log_probability] : token.likely) likely.push_back({other, log_probability});
            all.push_back({{"log_probability", token.chosen.log_probability}, {"likely", std::move(likely)}});
        }
    }
    line["end"] = answer.end;
    line["prompt_tokens"] = request.writing.prompt.size();
    line["first_token_seconds"] = answer.first_token;
    line["seconds"] = answer.seconds;
    return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace pentad_generate
