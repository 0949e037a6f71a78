// Plans as a table for people: memory, time and bytes, and why the near misses lost.
#pragma once

#include <pentad/planner/search.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::report {

/// Rows of cells under a heading of as many; columns are as wide as they must be. Those from `numbers` on end at the
/// right.
std::string table_text(std::vector<std::vector<std::string>> const& rows, std::size_t numbers);

namespace detail {

/// The cells of a plan, without its number and without bytes of axes that no plan has.
std::vector<std::string> plan_cells(planner::Candidate const& plan, std::span<std::string_view const> axes);

} // namespace detail

/// The plans, the best first, and below them those that would be faster and do not fit. sp: sequence parallelism;
/// attention: over cp, where a plan has that; the bytes are those that all ranks send in a step, by axis.
std::string plan_table(std::span<planner::Candidate const> best, std::span<planner::Candidate const> near_misses,
                       planner::Hardware const& hardware);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/plan_table.hpp>
#endif
