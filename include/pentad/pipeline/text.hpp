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
// slice 1 of micro-batch 3; F3@2 names the stage, where a rank has several. # begins a comment.
#pragma once

#include <pentad/mesh/number.hpp>
#include <pentad/mesh/one_line.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

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
    explicit OnlyStages(Schedule const& schedule) {
        for (auto const& placement : schedule.placements)
            for (std::size_t at = 0; at < placement.size(); ++at) {
                auto const [place, is_new] = stages_.emplace(placement[at], static_cast<int>(at));
                if (!is_new && place->second != static_cast<int>(at)) place->second.reset();
            }
    }
    [[nodiscard]] std::optional<int> of(int rank) const {
        auto const found = stages_.find(rank);
        return found == stages_.end() ? std::nullopt : found->second;
    }

  private:
    std::unordered_map<int, std::optional<int>> stages_;
};
/// Whether instructions are printed with their stages: where some rank has several, or uses one that it does not have.
inline bool names_stages(Schedule const& schedule) {
    OnlyStages const only(schedule);
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        auto const stage = only.of(rank);
        auto const& list = schedule.instructions[static_cast<std::size_t>(rank)];
        if (!stage || std::any_of(list.begin(), list.end(), [&](auto const& x) { return x.stage != *stage; }))
            return true;
    }
    return false;
}

/// "F", "<g"
constexpr std::string_view symbol(Operation operation) { return detail::symbols[static_cast<std::size_t>(operation)]; }
/// "F0", "<g3.1@2"
inline std::string symbol(Schedule const& schedule, Instruction const& instruction, bool names_stage) {
    std::string text(symbol(instruction.operation));
    text += std::to_string(instruction.micro_batch);
    if (instruction.slice != 0 || (schedule.slices > 1 && !is_of_update(instruction.operation)))
        text += "." + std::to_string(instruction.slice);
    if (names_stage) text += "@" + std::to_string(instruction.stage);
    return text;
}

/// The instruction of a symbol; `stage` is the one that it means where it names none. Throws std::invalid_argument
/// where it is none.
inline Instruction instruction_of(std::string_view text, std::optional<int> stage) {
    auto const refuse = [&](std::string const& why) { throw std::invalid_argument("'" + one_line(text) + "' " + why); };
    std::string_view rest = text;
    auto const cut_after = [&](char mark) -> std::optional<std::string_view> {
        auto const at = rest.find(mark);
        if (at == std::string_view::npos) return std::nullopt;
        auto const tail = rest.substr(at + 1);
        rest = rest.substr(0, at);
        return tail;
    };
    auto const named = cut_after('@');
    auto const slice = cut_after('.');
    auto const digits = std::min(rest.find_first_of("0123456789"), rest.size());
    auto const found = std::find(detail::symbols.begin(), detail::symbols.end(), rest.substr(0, digits));
    auto const micro_batch = detail::count_in(rest.substr(digits));
    auto const slice_number = slice ? detail::count_in(*slice) : 0;
    if (named) stage = detail::count_in(*named);
    if (found == detail::symbols.end() || !micro_batch)
        refuse("is no instruction: that is one of F B D W R >a <a >g <g G S U and a number, as in F0 or <g3");
    if (!slice_number) refuse("has no number of a slice after the point");
    if (!stage)
        refuse(named ? "has no number of a stage after the @"
                     : "does not say which of the rank's stages it is for, as in " + one_line(text) + "@2");
    return {static_cast<Operation>(found - detail::symbols.begin()), stage.value_or(0), micro_batch.value_or(0),
            slice_number.value_or(0)};
}

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

namespace detail {

/// Reads the text form line by line.
class ScheduleParser {
  public:
    Schedule run(std::string_view text) {
        while (!text.empty()) {
            ++line_;
            auto const end = std::min(text.find('\n'), text.size());
            auto const line = text.substr(0, end);
            split(line.substr(0, line.find('#')));
            text.remove_prefix(std::min(end + 1, text.size()));
            if (!words_.empty()) read();
        }
        ++line_;
        for (std::string_view const needed : {"schedule", "micro-batches"})
            if (!contains(needed)) refuse("the text ends without " + std::string(needed));
        if (result_.instructions.empty()) refuse("the text ends without what the ranks do: rank 0: F0 ...");
        return std::move(result_);
    }

  private:
    [[noreturn]] void refuse(std::string const& why) const {
        throw std::invalid_argument("line " + std::to_string(line_) + ": " + why);
    }
    [[nodiscard]] bool contains(std::string_view word) const {
        return std::find(seen_.begin(), seen_.end(), word) != seen_.end();
    }
    void split(std::string_view line) {
        constexpr std::string_view blank = " \t\r";
        words_.clear();
        for (auto at = line.find_first_not_of(blank); at != std::string_view::npos;) {
            auto const end = std::min(line.find_first_of(blank, at), line.size());
            words_.push_back(line.substr(at, end - at));
            at = line.find_first_not_of(blank, end);
        }
    }
    [[nodiscard]] std::vector<int> numbers(std::size_t from) const {
        std::vector<int> values;
        for (std::size_t at = from; at < words_.size(); ++at) {
            auto const value = count_in(words_[at]);
            if (!value) refuse("'" + one_line(words_[at]) + "' is not a number from 0 on");
            values.push_back(*value);
        }
        return values;
    }

    void read() {
        std::string const word(words_[0]);
        if (word == "rank") return read_rank();
        if (word == "stages") return read_stages();
        if (contains(word)) refuse(word + " is said twice");
        seen_.push_back(word);
        auto const takes = [&](std::size_t count, std::string const& what) {
            if (words_.size() != count + 1) refuse(word + " " + what);
        };
        for (auto const& [name, value, usual] : schedule_numbers)
            if (name == word) {
                takes(1, "takes one number, as in " + word + " 2");
                result_.*value = numbers(1)[0];
                return;
            }
        for (auto const& [name, value] : schedule_flags)
            if (name == word) {
                takes(0, "stands alone");
                result_.*value = true;
                return;
            }
        if (word == "schedule") {
            if (words_.size() < 2) refuse("schedule takes a name");
            result_.name = words_[1];
            for (std::size_t at = 2; at < words_.size(); ++at) (result_.name += ' ') += words_[at];
            if (!is_schedule_name(result_.name))
                refuse("the name '" + one_line(result_.name) + "' is not UTF-8, or has control characters in it");
        } else if (word == "inference") {
            takes(0, "stands alone");
            result_.purpose = Purpose::inference;
        } else if (word == "delay") {
            result_.delay = numbers(1);
        } else {
            refuse("'" + one_line(word) +
                   "' is none of: schedule, inference, micro-batches, slices, updates, weight-versions, "
                   "delay, recomputes, gathers, reduces, stages on ranks, rank");
        }
    }
    void read_stages() {
        if (words_.size() < 4 || words_[1] != "on" || words_[2] != "ranks")
            refuse("expected 'stages on ranks' and the rank of each stage, as in stages on ranks 0 1 1 0");
        if (only_) refuse("where the stages are is said before what the ranks do");
        result_.placements.push_back(numbers(3));
        if (result_.placements.back().size() != result_.placements[0].size())
            refuse("has " + std::to_string(result_.placements.back().size()) + " stages; the placement before has " +
                   std::to_string(result_.placements[0].size()));
    }
    void read_rank() {
        int const rank = result_.ranks();
        if (result_.placements.empty()) refuse("expected 'stages on ranks' before what the ranks do");
        if (words_.size() < 2 || words_[1] != std::to_string(rank) + ":")
            refuse("expected 'rank " + std::to_string(rank) + ":' and what it does");
        if (!only_) only_.emplace(result_);
        auto const stage = only_->of(rank);
        auto& list = result_.instructions.emplace_back();
        try {
            for (std::size_t at = 2; at < words_.size(); ++at) list.push_back(instruction_of(words_[at], stage));
        } catch (std::invalid_argument const& error) {
            refuse(error.what());
        }
    }

    Schedule result_;
    std::size_t line_ = 0;
    std::vector<std::string_view> words_;
    std::vector<std::string> seen_;
    std::optional<OnlyStages> only_; ///< once all stages are known
};

} // namespace detail

/// Throws std::invalid_argument("line 4: ...") with what is wrong there and what is expected. Whether the schedule is
/// right is for the validator to judge.
inline Schedule parse_schedule(std::string_view text) { return detail::ScheduleParser().run(text); }

} // namespace pentad::pipeline
