// The functions of <pentad/planner/least_recomputation.hpp>.
#pragma once

#include <pentad/planner/least_recomputation.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/planner/detail/recomputation_chain.hpp>

namespace pentad::planner {

PENTAD_INLINE RecomputationChoice least_recomputation(RecomputationProblem const& problem) {
    return detail::RecomputationChain(problem).solve();
}

PENTAD_INLINE double least_recomputed_work(RecomputationProblem const& problem) {
    return detail::RecomputationChain(problem).least_work();
}

} // namespace pentad::planner
