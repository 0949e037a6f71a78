// Which blocks recompute what, so that activations fit into a limit with the least work.
#pragma once

#include <pentad/planner/recomputation_problem.hpp>

namespace pentad::planner {

/// The choice with the least work that fits; where nothing does, one that keeps little.
[[nodiscard]] RecomputationChoice least_recomputation(RecomputationProblem const& problem);

/// No choice that fits has less work; infinity where none fits. Quickly found.
[[nodiscard]] double least_recomputed_work(RecomputationProblem const& problem);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/least_recomputation.hpp>
#endif
