// Whether a run fits into the memory of its hosts, asked before the first allocation.
#pragma once

#include "options.hpp"
#include "run.hpp"

#include <pentad/pipeline/schedule.hpp>
#include <pentad/program/ranks.hpp>

namespace train_lm {

/// @throws program::BadInput on all ranks where the run does not fit, with the numbers and the flags that would repair
/// it at the least cost. Collective.
void check_memory(Options const& options, pentad::pipeline::Schedule const& schedule, Mesh const& mesh,
                  pentad::program::Ranks const& ranks);

} // namespace train_lm
