// Whether a run fits into the memory of its hosts, asked before the first allocation.
#pragma once

#include "options.hpp"
#include "run.hpp"

#include <pentad/pipeline/schedule.hpp>
#include <pentad/program/ranks.hpp>

#include <string>

namespace train_lm {

/// Why the run does not fit, with the numbers and the flags that would mend it at the least cost; empty where it fits,
/// and on all ranks but the first. Collective.
[[nodiscard]] std::string memory_refusal(Options const& options, pentad::pipeline::Schedule const& schedule,
                                         Mesh const& mesh, pentad::program::Ranks& ranks);

} // namespace train_lm
