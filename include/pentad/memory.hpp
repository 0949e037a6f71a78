// Memory: views with extents, the pool, copies between host and device.
#pragma once

#include <pentad/memory/complex.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/memory/driving_thread.hpp>
#include <pentad/memory/host_array.hpp>
#include <pentad/memory/host_runs.hpp>
#include <pentad/memory/host_transpose.hpp>
#include <pentad/memory/pool.hpp>
#include <pentad/memory/runs.hpp>
#include <pentad/memory/shared_memory.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/memory/view.hpp>
