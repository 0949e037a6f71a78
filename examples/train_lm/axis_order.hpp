// How the mesh of a run lies on nodes, and the order of its axes.
#pragma once

#include "configuration.hpp"
#include "training.hpp"

#include <pentad/comm/communicator.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace train_lm {

/// The axes in the order that the run is to have: as given, or with --order auto the order that sends least between
/// nodes. Rank 0 says how they lie on the nodes, and what these send, unless the options are quiet. Collective.
/// @param communicators of the mesh as given @param make makes the training of a dry run, on its communicators
[[nodiscard]] std::vector<MeshAxis>
ordered_axes(Options const& options, pentad::pipeline::Schedule const& schedule,
             pentad::comm::Communicators const& communicators,
             std::function<std::unique_ptr<Training>(pentad::comm::Communicators&)> const& make);

} // namespace train_lm
