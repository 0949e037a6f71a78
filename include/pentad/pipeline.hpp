// Pipeline schedules as data: generators, validator, simulator and search. Needs neither MPI nor Kokkos.
#pragma once

#include <pentad/pipeline/dealt_layers.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/messages.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/search.hpp>
#include <pentad/pipeline/simulator.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/pipeline/timing.hpp>
#include <pentad/pipeline/validator.hpp>
