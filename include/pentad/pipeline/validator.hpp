// Proves a schedule before it runs: everything done exactly once and in order, with the
// weights that it should see, each receive met by its send, no deadlock; and says what it needs at its peak.
#pragma once

#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/validator/verdict.hpp>

namespace pentad::pipeline {

/// Proves a schedule for a machine, or says what is wrong with it. Time and memory are linear in its length.
Verdict validate(Schedule const& schedule, Machine machine = {});

/// The schedule, where validate() accepts it. @throws std::invalid_argument with its message
Schedule proven(Schedule schedule);

} // namespace pentad::pipeline

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/pipeline/impl/validator.hpp>
#endif
