// Schedules in files: the text form of pipeline/text.hpp, or JSON with the same words, for programs that make
// schedules of their own:
//
//     {"schedule": "1f1b", "micro-batches": 1, "stages on ranks": [[0, 1]],
//      "ranks": [["F0", ">a0", "<g0", "B0"], ["<a0", "F0", "B0", ">g0"]]}
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/text.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::io {

/// Calls write(text) for the lines of the schedule as JSON: of the head, then of each rank.
template <class Write>
void write_json(pipeline::Schedule const& schedule, Write const& write) {
    using Json = detail::OrderedJson;
    Json head{{"schedule", schedule.name}};
    if (schedule.purpose == pipeline::Purpose::inference) head["inference"] = true;
    for (auto const& [word, value, usual] : pipeline::schedule_numbers)
        if (schedule.*value != usual) head[std::string(word)] = schedule.*value;
    if (!schedule.delay.empty()) head["delay"] = schedule.delay;
    for (auto const& [word, value] : pipeline::schedule_flags)
        if (schedule.*value) head[std::string(word)] = true;
    head["stages on ranks"] = schedule.placements;
    std::string text = detail::dump(head);
    text.pop_back();
    text += ",\n\"ranks\": [";
    bool const names_stage = pipeline::names_stages(schedule);
    for (std::size_t rank = 0; rank < schedule.instructions.size(); ++rank) {
        text += rank == 0 ? "\n[" : ",\n[";
        for (auto const& instruction : schedule.instructions[rank]) { // symbols have no character that JSON escapes
            if (text.back() != '[') text += ',';
            text += '"';
            text += pipeline::symbol(schedule, instruction, names_stage);
            text += '"';
        }
        text += ']';
        write(text);
        text.clear();
    }
    text += "]}\n";
    write(text);
}
inline std::string to_json(pipeline::Schedule const& schedule) {
    std::string text;
    write_json(schedule, [&](std::string const& lines) { text += lines; });
    return text;
}

namespace detail {

inline int json_number(Json const& value, std::string const& where) {
    if (!value.is_number_unsigned() || value > std::numeric_limits<int>::max())
        refuse_json(where, "a number from 0 on", value);
    return value.get<int>();
}
inline std::vector<int> json_numbers(Json const& value, std::string const& where) {
    if (!value.is_array()) refuse_json(where, "a list of numbers", value);
    std::vector<int> numbers;
    for (auto const& element : value)
        numbers.push_back(json_number(element, where + "[" + std::to_string(numbers.size()) + "]"));
    return numbers;
}

} // namespace detail

/// Throws std::invalid_argument with the place in the JSON and what is expected there.
inline pipeline::Schedule schedule_from_json(std::string_view text) {
    using detail::refuse_json;
    auto const json = detail::parse_object(text);
    pipeline::Schedule schedule;
    for (auto const& [key, value] : json.items()) {
        bool known = true;
        if (key == "schedule") {
            if (!value.is_string()) refuse_json(key, "a name", value);
            schedule.name = value.get<std::string>();
            if (!pipeline::is_schedule_name(schedule.name))
                refuse_json(key, "a name without #, control characters and blanks beside blanks", value);
        } else if (key == "inference") {
            if (detail::flag(value, key)) schedule.purpose = pipeline::Purpose::inference;
        } else if (key == "delay") {
            schedule.delay = detail::json_numbers(value, key);
        } else if (key == "stages on ranks") {
            if (!value.is_array()) refuse_json(key, "a list of placements, each a list of ranks", value);
            for (auto const& placement : value)
                schedule.placements.push_back(
                    detail::json_numbers(placement, key + "[" + std::to_string(schedule.placements.size()) + "]"));
        } else if (key != "ranks") {
            known = false;
        }
        for (auto const& [word, member, usual] : pipeline::schedule_numbers)
            if (key == word) schedule.*member = detail::json_number(value, key), known = true;
        for (auto const& [word, member] : pipeline::schedule_flags)
            if (key == word) schedule.*member = detail::flag(value, key), known = true;
        if (!known)
            refuse_json(detail::quoted_key("", key),
                        "schedule, inference, micro-batches, slices, updates, weight-versions, delay, "
                        "recomputes, gathers, reduces, stages on ranks or ranks");
    }
    for (char const* const needed : {"schedule", "micro-batches", "stages on ranks", "ranks"})
        if (!json.contains(needed)) refuse_json("the object", "'" + std::string(needed) + "' in it");
    if (schedule.stages() == 0) refuse_json("stages on ranks", "the rank of each stage, as in [[0, 1]]");
    for (auto const& placement : schedule.placements)
        if (placement.size() != schedule.placements[0].size())
            refuse_json("stages on ranks", "as many stages in each placement");
    auto const& ranks = json["ranks"];
    if (!ranks.is_array() || ranks.empty()) refuse_json("ranks", "a list for each rank");
    pipeline::OnlyStages const only_stages(schedule);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        std::string const where = "ranks[" + std::to_string(rank) + "]";
        if (!ranks[rank].is_array()) refuse_json(where, "a list of instructions, as in [\"F0\", \">a0\"]");
        auto const stage = only_stages.of(static_cast<int>(rank));
        auto& list = schedule.instructions.emplace_back();
        for (auto const& element : ranks[rank]) {
            std::string const here = where + "[" + std::to_string(list.size()) + "]";
            if (!element.is_string()) refuse_json(here, "an instruction, as in \"F0\"", element);
            try {
                list.push_back(pipeline::instruction_of(element.get<std::string>(), stage));
            } catch (std::invalid_argument const& error) {
                throw std::invalid_argument(here + ": " + error.what());
            }
        }
    }
    return schedule;
}

/// Reads a schedule in either form; FileError names the file, the line (JSON: the place) and what is expected there.
inline pipeline::Schedule read_schedule(std::filesystem::path const& path) {
    std::string const text = read_file(path, std::uint64_t{64} << 20);
    auto const first = text.find_first_not_of(" \t\r\n");
    try {
        return first != std::string::npos && text[first] == '{' ? schedule_from_json(text)
                                                                : pipeline::parse_schedule(text);
    } catch (std::invalid_argument const& error) {
        throw FileError("cannot read the schedule " + path.string() + ": " + error.what());
    }
}

} // namespace pentad::io
