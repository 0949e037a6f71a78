// The account of a plan for people: where the time goes, what bounds each operation, what is held and
// what is sent.
#pragma once

#include <pentad/planner/estimate.hpp>

#include <string>
#include <utility>
#include <vector>

namespace pentad::report {

/// The seconds of a step by what the slowest rank does, or waits for.
std::vector<std::pair<std::string, double>> time_shares(planner::Shares const& shares);

namespace detail {

/// Operations of one name.
struct OperationTime {
    std::string name;
    bool sends = false;
    double forward = 0, backward = 0, longest = 0;
    planner::Bound bound = planner::Bound::compute; ///< of the longest

    [[nodiscard]] double seconds() const { return forward + backward; }
};

/// What all stages do for a micro-batch, the longest first.
std::vector<OperationTime> operation_times(planner::Model const& model, planner::Hardware const& hardware,
                                           Strategy const& c);

} // namespace detail

/// @throws std::invalid_argument where it is no plan (misfit())
std::string plan_account(planner::Model const& model, planner::Hardware const& hardware, Strategy const& c);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/plan_account.hpp>
#endif
