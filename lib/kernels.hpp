// The kernels that pentad::compiled_kernels compiles: all of kernels/, and those of the modules above it.
#pragma once

#include <pentad/context/detail/carried_states.hpp>
#include <pentad/experts/balance.hpp>
#include <pentad/experts/detail/random_rows.hpp>
#include <pentad/experts/detail/row_gather.hpp>
#include <pentad/kernels.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/zero/compact.hpp>
