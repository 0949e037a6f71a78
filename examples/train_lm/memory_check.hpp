// Whether a run fits into the memory of its hosts, asked before the first allocation.
#pragma once

#include "configuration.hpp"
#include "options.hpp"

#include <pentad/model/recomputation.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/program/ranks.hpp>

namespace train_lm {

/// --recompute auto as a plan for the blocks: each rank of the pipeline keeps within --memory-limit, or what its host
/// has, with the least work. The machine is measured where something has to be recomputed. The same on all ranks.
/// @throws program::BadInput on all ranks where that cannot be. Collective.
[[nodiscard]] pentad::model::Recomputation plan_recomputation(Options const& options,
                                                              pentad::pipeline::Schedule const& schedule,
                                                              pentad::program::Ranks const& ranks);

/// The flags, a mesh among them, with which the run fits into the memory of each rank, and that change least; empty:
/// none do. Collective.
[[nodiscard]] std::string flags_that_fit(Options const& options, pentad::program::Ranks const& ranks);

/// @param recompute that of the run
/// @throws program::BadInput on all ranks where the run does not fit, with the numbers and the flags that would repair
/// it at the least cost. Collective.
void check_memory(Options const& options, pentad::model::Recomputation const& recompute,
                  pentad::pipeline::Schedule const& schedule, Mesh const& mesh, pentad::program::Ranks const& ranks);

} // namespace train_lm
