// The functions of <pentad/report/plan_table.hpp>.
#pragma once

#include <pentad/report/plan_table.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/report/plan_text.hpp>

#include <algorithm>

namespace pentad::report {

PENTAD_INLINE std::string table_text(std::vector<std::vector<std::string>> const& rows, std::size_t numbers) {
    std::vector<std::size_t> widths;
    for (auto const& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) {
            if (i == widths.size()) widths.push_back(0);
            widths[i] = std::max(widths[i], row[i].size());
        }
    std::string text;
    for (auto const& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            std::string const fill(widths[i] - row[i].size(), ' ');
            line += (i == 0 ? "" : "  ") + (i < numbers ? row[i] + fill : fill + row[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

} // namespace pentad::report

namespace pentad::report::detail {

PENTAD_INLINE std::vector<std::string> plan_cells(planner::Candidate const& plan,
                                                  std::span<std::string_view const> axes) {
    auto const& [c, estimate] = plan;
    std::vector<std::string> row{
        mesh_text(c) +
            (c.block.tensor_kind != model::TensorKind::one_d ? " " + std::string(model::name(c.block.tensor_kind))
                                                             : "") +
            (c.block.sequence_parallel ? " sp" : "") +
            (c.block.attention_output == model::AttentionOutput::all_to_all ? " a2a" : ""),
        c.cp == 1 ? "-" : context_choice(c).text() + (c.block.zigzag ? "" : " contiguous"),
        c.pp == 1 ? "-"
                  : c.schedule + (c.chunks > 1 ? " x" + std::to_string(c.chunks) : "") +
                        (c.balances_stages || !c.stage_layers.empty() ? " uneven" : ""),
        recompute_text(c.recompute),
        std::to_string(c.sharding.stage) + (c.sharding.ranks > 0 ? "/" + std::to_string(c.sharding.ranks) : "") +
            (c.sharding.keeps_parameters ? " keep" : "") + (c.sharding.accumulates_gradients ? " accumulate" : ""),
        std::to_string(c.micro_batch()),
        bytes(estimate.memory_peak),
        duration(estimate.step_s),
        percent(estimate.mfu)};
    for (auto const axis : axes) row.push_back(bytes(estimate.bytes[axis]));
    return row;
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE std::string plan_table(std::span<planner::Candidate const> best,
                                     std::span<planner::Candidate const> near_misses,
                                     planner::Hardware const& hardware) {
    std::vector<std::string_view> axes;
    for (auto const axis : view_axes)
        for (auto const plans : {best, near_misses})
            for (auto const& plan : plans)
                if (plan.estimate.bytes[axis] > 0 && (axes.empty() || axes.back() != axis)) axes.push_back(axis);
    std::vector<std::vector<std::string>> rows{
        {"", "mesh", "attention", "schedule", "recompute", "ZeRO", "micro-batch", "memory", "step", "MFU"}};
    for (auto const axis : axes) rows[0].push_back("by " + std::string(axis));
    auto const add = [&](std::string const& number, planner::Candidate const& plan) {
        auto const cells = detail::plan_cells(plan, axes);
        rows.push_back({number});
        rows.back().insert(rows.back().end(), cells.begin(), cells.end());
    };
    for (std::size_t i = 0; i < best.size(); ++i) add(std::to_string(i + 1), best[i]);
    for (auto const& plan : near_misses) add("-", plan);
    auto const goes_over_cp = [](planner::Candidate const& plan) { return plan.strategy.cp > 1; };
    bool const has_cp = std::any_of(best.begin(), best.end(), goes_over_cp) ||
                        std::any_of(near_misses.begin(), near_misses.end(), goes_over_cp);
    if (!has_cp)
        for (auto& row : rows) row.erase(row.begin() + 2);
    std::string text = table_text(rows, has_cp ? 5 : 4);
    if (near_misses.empty()) return text;
    // What each lacks ends its line.
    std::size_t at = 0;
    for (std::size_t line = 0; line <= best.size(); ++line) at = text.find('\n', at) + 1;
    for (auto const& plan : near_misses) {
        at = text.find('\n', at);
        std::string const why = "  " + what_is_lacking(plan.estimate, hardware);
        text.insert(at, why);
        at += why.size() + 1;
    }
    return text;
}

} // namespace pentad::report
