// What --cp leaves open: the split of cp by nodes, and the strategy of --cp auto.
#pragma once

#include "options.hpp"

namespace train_lm {

/// The options with all that belongs to --cp: where it splits cp by nodes as these have been found, and where it is
/// auto with the strategy whose estimated step is the shortest on the measured machine. Kokkos is initialised.
/// Collective; rank 0 prints the choice, unless the options are quiet.
/// @throws program::BadInput on all ranks where nodes do not split cp, or the heads of the model do not suffice for it
[[nodiscard]] Options with_context(Options options);

} // namespace train_lm
