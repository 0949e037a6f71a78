// Programs on all ranks: their start, their exit status, their memory.
#pragma once

#include <pentad/program/exit_status.hpp>
#include <pentad/program/memory.hpp>
#include <pentad/program/ranks.hpp>
