// The mesh of --mesh auto.
#pragma once

#include "options.hpp"

#include <pentad/program/ranks.hpp>

namespace train_lm {

/// Measures the machine, and plans: the mesh of all ranks that is expected to be the fastest with these options. Kokkos
/// is up. Collective; rank 0 says what it found unless the options are quiet.
/// @throws std::invalid_argument when none can run, the same on all ranks
[[nodiscard]] PlannedMesh planned_mesh(Options const& options, pentad::program::Ranks const& ranks);

} // namespace train_lm
