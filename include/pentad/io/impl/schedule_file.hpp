// The functions of <pentad/io/schedule_file.hpp>.
#pragma once

#include <pentad/io/schedule_file.hpp>

#include <pentad/io/file.hpp>
#include <pentad/mesh/inline.hpp>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

namespace pentad::io::detail {

PENTAD_INLINE int json_number(Json const& value, std::string const& where) {
    if (!value.is_number_unsigned() || value > std::numeric_limits<int>::max())
        refuse_json(where, "a number from 0 on", value);
    return value.get<int>();
}

PENTAD_INLINE std::vector<int> json_numbers(Json const& value, std::string const& where) {
    if (!value.is_array()) refuse_json(where, "a list of numbers", value);
    std::vector<int> numbers;
    for (auto const& element : value)
        numbers.push_back(json_number(element, where + "[" + std::to_string(numbers.size()) + "]"));
    return numbers;
}

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE pipeline::Schedule schedule_from_json(std::string_view text) {
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

PENTAD_INLINE pipeline::Schedule read_schedule(std::filesystem::path const& path) {
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
