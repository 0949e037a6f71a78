// Which blocks recompute what, so that activations fit into a limit with the least work.
#pragma once

#include <pentad/planner/detail/recomputation_chain.hpp>
#include <pentad/planner/recomputation_problem.hpp>

namespace pentad::planner {

/// The choice with the least work that fits; where nothing does, one that keeps little.
[[nodiscard]] inline RecomputationChoice least_recomputation(RecomputationProblem const& problem) {
    return detail::RecomputationChain(problem).solve();
}

} // namespace pentad::planner
