// What --offload has done, at the end of a run.
#pragma once

#include "options.hpp"
#include "training.hpp"

namespace train_lm {

/// Prints the bytes that were offloaded, the throughput of the disk, and how long steps waited for it. Collective.
/// @param waited seconds @param seconds of all steps
void print_offload(Options const& options, Training const& training, double waited, double seconds, int rank);

} // namespace train_lm
