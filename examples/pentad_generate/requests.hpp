// Requests as lines of JSON, and the lines that answer them.
#pragma once

#include "options.hpp"

#include <pentad/train/scheduler.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentad_generate {

/// Texts as tokens: those of a tokenizer, or bytes.
struct TextForm {
    std::function<std::vector<std::int32_t>(std::string_view)> encode{};
    std::function<std::string(std::span<std::int32_t const>)> decode{};
    std::vector<std::int32_t> ends{}; ///< tokens with which the model ends a text

    [[nodiscard]] bool exists() const { return encode != nullptr; }
};
/// Tokens are bytes.
TextForm bytes_form();

struct Request {
    pentad::train::WritingRequest writing{};
    std::vector<std::string> stops{}; ///< texts
    nlohmann::ordered_json id{};      ///< as the request says it; null: it says none
};

/// The requests of the lines, blank ones left out. @param length tokens of a sequence at most
/// @throws program::BadInput with the number of the line
std::vector<Request> read_requests(std::string_view lines, Options const& options, TextForm const& form,
                                   std::size_t length);

/// All requests as a text, and back: what one rank tells the others.
std::string packed(std::vector<Request> const& requests);
std::vector<Request> unpacked(std::string const& text);

/// What was written for a request.
struct Answer {
    std::vector<pentad::train::ChosenToken> tokens{};
    std::string text{}, end{};
    double first_token = 0, seconds = 0; ///< from its submission
};
/// A line of JSON without its end. @param number of the request, from 0
std::string answer_line(std::size_t number, Request const& request, Answer const& answer, TextForm const& form);

} // namespace pentad_generate
