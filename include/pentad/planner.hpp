// The planner: time, memory and bytes of a configuration on a machine, and the search for the best. Needs neither MPI
// nor Kokkos.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/automatic_recomputation.hpp>
#include <pentad/planner/balanced_stages.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/planner/hardware.hpp>
#include <pentad/planner/hardware_presets.hpp>
#include <pentad/planner/held_moments.hpp>
#include <pentad/planner/least_recomputation.hpp>
#include <pentad/planner/memory.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/planner/names.hpp>
#include <pentad/planner/nodes.hpp>
#include <pentad/planner/orders_on_nodes.hpp>
#include <pentad/planner/pairs.hpp>
#include <pentad/planner/part.hpp>
#include <pentad/planner/pipelines.hpp>
#include <pentad/planner/recomputation_problem.hpp>
#include <pentad/planner/search.hpp>
#include <pentad/planner/serving.hpp>
#include <pentad/planner/serving_search.hpp>
#include <pentad/planner/stage_layers.hpp>
#include <pentad/planner/stage_times.hpp>
