// The functions of <pentad/pipeline/text.hpp>.
#pragma once

#include <pentad/pipeline/text.hpp>

#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pentad::pipeline::detail {

/// Reads the text form line by line.
class ScheduleParser {
  public:
    Schedule run(std::string_view text);

  private:
    [[noreturn]] void refuse(std::string const& why) const {
        throw std::invalid_argument("line " + std::to_string(line_) + ": " + why);
    }
    [[nodiscard]] bool contains(std::string_view word) const {
        return std::find(seen_.begin(), seen_.end(), word) != seen_.end();
    }
    void split(std::string_view line);
    [[nodiscard]] std::vector<int> numbers(std::size_t from) const;

    void read();
    void read_stages();
    void read_rank();

    Schedule result_;
    std::size_t line_ = 0;
    std::vector<std::string_view> words_;
    std::vector<std::string> seen_;
    std::optional<OnlyStages> only_; ///< once all stages are known
};

} // namespace pentad::pipeline::detail

namespace pentad::pipeline {

PENTAD_INLINE OnlyStages::OnlyStages(Schedule const& schedule) {
    for (auto const& placement : schedule.placements)
        for (std::size_t at = 0; at < placement.size(); ++at) {
            auto const [place, is_new] = stages_.emplace(placement[at], static_cast<int>(at));
            if (!is_new && place->second != static_cast<int>(at)) place->second.reset();
        }
}

PENTAD_INLINE bool names_stages(Schedule const& schedule) {
    OnlyStages const only(schedule);
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        auto const stage = only.of(rank);
        auto const& list = schedule.instructions[static_cast<std::size_t>(rank)];
        if (!stage || std::any_of(list.begin(), list.end(), [&](auto const& x) { return x.stage != *stage; }))
            return true;
    }
    return false;
}

PENTAD_INLINE std::string symbol(Schedule const& schedule, Instruction const& instruction, bool names_stage) {
    std::string text(symbol(instruction.operation));
    text += std::to_string(instruction.micro_batch);
    if (instruction.slice != 0 || (schedule.slices > 1 && !is_of_update(instruction.operation)))
        text += "." + std::to_string(instruction.slice);
    if (names_stage) text += "@" + std::to_string(instruction.stage);
    if (instruction.paired) text += '&';
    return text;
}

} // namespace pentad::pipeline

namespace pentad::pipeline::detail {

PENTAD_INLINE Schedule ScheduleParser::run(std::string_view text) {
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

PENTAD_INLINE void ScheduleParser::split(std::string_view line) {
    constexpr std::string_view blank = " \t\r";
    words_.clear();
    for (auto at = line.find_first_not_of(blank); at != std::string_view::npos;) {
        auto const end = std::min(line.find_first_of(blank, at), line.size());
        words_.push_back(line.substr(at, end - at));
        at = line.find_first_not_of(blank, end);
    }
}

PENTAD_INLINE std::vector<int> ScheduleParser::numbers(std::size_t from) const {
    std::vector<int> values;
    for (std::size_t at = from; at < words_.size(); ++at) {
        auto const value = count_in(words_[at]);
        if (!value) refuse("'" + one_line(words_[at]) + "' is not a number from 0 on");
        values.push_back(*value);
    }
    return values;
}

PENTAD_INLINE void ScheduleParser::read() {
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

PENTAD_INLINE void ScheduleParser::read_stages() {
    if (words_.size() < 4 || words_[1] != "on" || words_[2] != "ranks")
        refuse("expected 'stages on ranks' and the rank of each stage, as in stages on ranks 0 1 1 0");
    if (only_) refuse("where the stages are is said before what the ranks do");
    result_.placements.push_back(numbers(3));
    if (result_.placements.back().size() != result_.placements[0].size())
        refuse("has " + std::to_string(result_.placements.back().size()) + " stages; the placement before has " +
               std::to_string(result_.placements[0].size()));
}

PENTAD_INLINE void ScheduleParser::read_rank() {
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

} // namespace pentad::pipeline::detail

namespace pentad::pipeline {

PENTAD_INLINE Instruction instruction_of(std::string_view text, std::optional<int> stage) {
    auto const refuse = [&](std::string const& why) { throw std::invalid_argument("'" + one_line(text) + "' " + why); };
    bool const paired = text.ends_with('&');
    std::string_view rest = text.substr(0, text.size() - (paired ? 1 : 0));
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
            slice_number.value_or(0), paired};
}

PENTAD_INLINE Schedule parse_schedule(std::string_view text) { return detail::ScheduleParser().run(text); }

} // namespace pentad::pipeline
