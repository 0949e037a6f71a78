// Schedules in files: the text form of pipeline/text.hpp, or JSON with the same words, for programs that make
// schedules of their own:
//
//     {"schedule": "1f1b", "micro-batches": 1, "stages on ranks": [[0, 1]],
//      "ranks": [["F0", ">a0", "<g0", "B0"], ["<a0", "F0", "B0", ">g0"]]}
#pragma once

#include <pentad/io/json.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/text.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

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

/// Throws std::invalid_argument with the place in the JSON and what is expected there.
pipeline::Schedule schedule_from_json(std::string_view text);

/// Reads a schedule in either form; FileError names the file, the line (JSON: the place) and what is expected there.
pipeline::Schedule read_schedule(std::filesystem::path const& path);

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/schedule_file.hpp>
#endif
