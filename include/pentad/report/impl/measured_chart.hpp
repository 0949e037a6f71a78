// The functions of <pentad/report/measured_chart.hpp>.
#pragma once

#include <pentad/report/measured_chart.hpp>

#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/text.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace pentad::report::detail {

/// Most bytes of a trace: those of 256 ranks that fill their buffers (2^18 spans, up to 64 MiB).
constexpr std::uint64_t most_trace_bytes = std::uint64_t{1} << 34;

/// The computes of a pipeline in a trace, by process; a stage that is not said is -1. All else is dropped while the
/// file is read.
PENTAD_INLINE std::map<int, std::vector<Bar>> pipeline_spans(std::filesystem::path const& path) {
    using io::detail::Json, io::detail::member, io::detail::refuse_json;
    std::map<int, std::vector<Bar>> ranks;
    auto const is_text = [](Json const& event, char const* key, std::string_view text) {
        auto const found = event.find(key);
        return found != event.end() && found->is_string() && found->get_ref<std::string const&>() == text;
    };
    auto const count = [](Json const& in, char const* key, int fallback = -1) {
        if (fallback >= 0 && !in.contains(key)) return fallback;
        return static_cast<int>(
            io::detail::whole_number(member(in, key, key), key, 0, std::numeric_limits<int>::max()));
    };
    auto const nanoseconds = [](Json const& event, char const* key) {
        auto const& time = member(event, key, key);
        if (!time.is_number() || !(time.get<double>() >= 0 && time.get<double>() <= 1e15))
            refuse_json(key, "microseconds from 0 to 1e15", time);
        return static_cast<pipeline::Time>(std::llround(time.get<double>() * 1000));
    };
    auto const take = [&](std::size_t depth, Json const& event) {
        if (depth != 2) return false;
        if (!is_text(event, "cat", "pipeline") || !is_text(event, "ph", "X")) return true;
        auto const operation = std::find_if(pipeline::operation_names.begin(), pipeline::operation_names.end(),
                                            [&](std::string_view name) { return is_text(event, "name", name); });
        auto const code = static_cast<pipeline::Operation>(operation - pipeline::operation_names.begin());
        if (!pipeline::is_compute(code)) return true;
        auto const start = nanoseconds(event, "ts");
        Json const& of = member(event, "args", "args");
        ranks[count(event, "pid")].push_back(
            {{code, of.contains("stage") ? count(of, "stage") : -1, count(of, "micro_batch"), count(of, "slice", 0)},
             start,
             start + nanoseconds(event, "dur")});
        return true;
    };
    auto const file = io::detail::parse_object(io::File::open_for_reading(path, most_trace_bytes), take);
    if (!file.contains("traceEvents")) refuse_json("the file", "'traceEvents' in it");
    for (auto& [rank, bars] : ranks)
        std::stable_sort(bars.begin(), bars.end(), [](Bar const& a, Bar const& b) { return a.start < b.start; });
    return ranks;
}

/// Where in the spans a rank begins to do all computes of a step, in order, time after time. What comes between (an
/// evaluation) is passed over.
PENTAD_INLINE std::vector<std::size_t> complete_steps(std::span<Bar const> spans, std::span<Bar const> step) {
    std::vector<std::size_t> begins;
    auto const same = [](Bar const& planned, Bar const& span) {
        auto did = span.instruction;
        if (did.stage < 0) did.stage = planned.instruction.stage;
        return did == planned.instruction;
    };
    for (std::size_t at = 0; !step.empty() && at + step.size() <= spans.size(); ++at)
        if (std::equal(step.begin(), step.end(), spans.begin() + static_cast<std::ptrdiff_t>(at), same))
            begins.push_back(at);
    return begins;
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE PipelineChart measured_chart(std::filesystem::path const& path, PipelineChart const& planned,
                                           std::vector<int> processes) {
    auto const refuse = [&](std::string const& why) {
        throw io::FileError("cannot read the timeline " + path.string() + ": " + why);
    };
    std::map<int, std::vector<Bar>> spans;
    try {
        spans = detail::pipeline_spans(path);
    } catch (std::invalid_argument const& error) {
        refuse("it is none that train_lm --trace writes (" + std::string(error.what()) + ")");
    }
    if (processes.empty())
        for (auto const& [process, unused] : spans) processes.push_back(process);
    if (processes.size() != planned.ranks.size())
        refuse("it has pipeline steps of " + std::to_string(processes.size()) + " ranks, and the schedule is for " +
               std::to_string(planned.ranks.size()));

    PipelineChart chart = planned;
    chart.unit = 1e-9;
    std::vector<std::vector<std::size_t>> begins;
    std::size_t complete = std::numeric_limits<std::size_t>::max();
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
        auto& step = chart.ranks[rank];
        std::erase_if(step, [](Bar const& bar) { return !pipeline::is_compute(bar.instruction.operation); });
        begins.push_back(detail::complete_steps(spans[processes[rank]], step));
        complete = std::min(complete, begins.back().size());
        if (complete == 0)
            refuse("its rank " + std::to_string(processes[rank]) +
                   " does not do what the schedule says, in no step: is it a run of this schedule?");
    }
    pipeline::Time origin = std::numeric_limits<pipeline::Time>::max();
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
        auto const& mine = spans[processes[rank]];
        for (std::size_t at = 0; at < chart.ranks[rank].size(); ++at) {
            auto& bar = chart.ranks[rank][at];
            bar.start = mine[begins[rank][complete - 1] + at].start;
            bar.end = mine[begins[rank][complete - 1] + at].end;
            origin = std::min(origin, bar.start);
        }
    }
    for (auto& bars : chart.ranks)
        for (Bar& bar : bars) bar = {bar.instruction, bar.start - origin, bar.end - origin};
    chart.title = "measured: step " + std::to_string(complete) + " of " + std::to_string(complete);
    return chart;
}

PENTAD_INLINE void set_times(pipeline::Costs& costs, PipelineChart const& measured) {
    std::map<std::pair<int, pipeline::Operation>, std::vector<pipeline::Time>> lengths;
    for (auto const& bars : measured.ranks)
        for (Bar const& bar : bars)
            lengths[{bar.instruction.stage, bar.instruction.operation}].push_back(bar.end - bar.start);
    for (auto& [of, all] : lengths) {
        auto const middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
        std::nth_element(all.begin(), middle, all.end());
        auto& cost = costs.stages[static_cast<std::size_t>(of.first)];
        if (of.second == pipeline::Operation::forward) cost.forward = *middle;
        if (of.second == pipeline::Operation::backward) cost.backward = *middle;
        if (of.second == pipeline::Operation::backward_data) cost.backward_data = *middle;
        if (of.second == pipeline::Operation::backward_weight) cost.backward_weight = *middle;
    }
}

} // namespace pentad::report
