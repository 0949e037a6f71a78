// Schedules as text that people read and write: a line for each number, a line for each
// rank. What is printed is read back the same.
//
//     schedule 1f1b
//     micro-batches 2
//     stages on ranks 0 1
//     rank 0: F0 >a0 F1 >a1 <g0 B0 <g1 B1
//     rank 1: <a0 F0 B0 >g0 <a1 F1 B1 >g1
//
// F forward, B backward, or in two parts D (data) and W (weight), R recompute; > sends, < receives, a an activation, g
// a gradient; G gathers parameters, S sums gradients over ranks, U updates, with the number of the update. F3.1 is
// slice 1 of micro-batch 3; F3@2 names the stage, where a rank has several; F3& B1 is a pair. # begins a comment.
#pragma once

#include <pentad/mesh/number.hpp>
#include <pentad/mesh/one_line.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace pentad::pipeline {

namespace detail {

inline constexpr std::array<std::string_view, operation_names.size()> symbols{"F",  "B",  "D",  "W", "R", ">a",
                                                                              "<a", ">g", "<g", "G", "S", "U"};

/// A number from 0 on.
inline std::optional<int> count_in(std::string_view text) {
    auto const number = number_in<int>(text);
    return number && *number >= 0 ? number : std::nullopt;
}

} // namespace detail

/// What a schedule says beside the stages and the ranks, by the words of the text form (and of JSON, io/).
/// A number also by its usual value, which is not said (-1: always said).
using ScheduleNumber = std::tuple<std::string_view, int Schedule::*, int>;
using ScheduleFlag = std::tuple<std::string_view, bool Schedule::*>;
inline constexpr std::array schedule_numbers{
    ScheduleNumber{"micro-batches", &Schedule::micro_batches, -1}, ScheduleNumber{"slices", &Schedule::slices, 1},
    ScheduleNumber{"updates", &Schedule::updates, 0}, ScheduleNumber{"weight-versions", &Schedule::weight_versions, 1}};
inline constexpr std::array schedule_flags{ScheduleFlag{"recomputes", &Schedule::recomputes},
                                           ScheduleFlag{"gathers", &Schedule::gathers},
                                           ScheduleFlag{"reduces", &Schedule::reduces}};

/// Whether a text is the name of a schedule: the text form keeps it as it is.
inline bool is_schedule_name(std::string_view name) {
    return !name.empty() && name.front() != ' ' && name.back() != ' ' && name.find("  ") == name.npos &&
           name.find('#') == name.npos && is_printable(name);
}

/// The stage of each rank that has one: its instructions need not name it.
class OnlyStages {
  public:
    explicit OnlyStages(Schedule const& schedule);
    [[nodiscard]] std::optional<int> of(int rank) const {
        auto const found = stages_.find(rank);
        return found == stages_.end() ? std::nullopt : found->second;
    }

  private:
    std::unordered_map<int, std::optional<int>> stages_;
};
/// Whether instructions are printed with their stages: where some rank has several, or uses one that it does not have.
bool names_stages(Schedule const& schedule);

/// "F", "<g"
constexpr std::string_view symbol(Operation operation) { return detail::symbols[static_cast<std::size_t>(operation)]; }
/// "F0", "<g3.1@2", "F3&"
std::string symbol(Schedule const& schedule, Instruction const& instruction, bool names_stage);

/// The instruction of a symbol; `stage` is the one that it means where it names none. Throws std::invalid_argument
/// where it is none.
Instruction instruction_of(std::string_view text, std::optional<int> stage);

/// Calls write(text) for the lines of the text form: of the head at once, then of each rank.
template <class Write>
void write_text(Schedule const& schedule, Write const& write) {
    std::string text = "schedule " + schedule.name + "\n";
    auto const line = [&](std::string_view key, auto const& numbers) {
        text += key;
        for (int const number : numbers) text += " " + std::to_string(number);
        text += "\n";
    };
    if (schedule.purpose == Purpose::inference) text += "inference\n";
    for (auto const& [word, value, usual] : schedule_numbers)
        if (schedule.*value != usual) line(word, std::array{schedule.*value});
    if (!schedule.delay.empty()) line("delay", schedule.delay);
    for (auto const& [word, value] : schedule_flags)
        if (schedule.*value) text += std::string(word) + "\n";
    for (auto const& placement : schedule.placements) line("stages on ranks", placement);
    write(text);
    bool const names_stage = names_stages(schedule);
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        text = "rank " + std::to_string(rank) + ":";
        for (Instruction const& instruction : schedule.instructions[static_cast<std::size_t>(rank)])
            text += " " + symbol(schedule, instruction, names_stage);
        text += "\n";
        write(text);
    }
}
inline std::string to_string(Schedule const& schedule) {
    std::string text;
    write_text(schedule, [&](std::string const& lines) { text += lines; });
    return text;
}

/// Throws std::invalid_argument("line 4: ...") with what is wrong there and what is expected. Whether the schedule is
/// right is for the validator to judge.
Schedule parse_schedule(std::string_view text);

} // namespace pentad::pipeline

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/pipeline/impl/text.hpp>
#endif
