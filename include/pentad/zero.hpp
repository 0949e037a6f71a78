// Parameters in buckets, and optimizers whose state is sharded (ZeRO).
#pragma once

#include <pentad/zero/bucket.hpp>
#include <pentad/zero/compact.hpp>
#include <pentad/zero/layouts.hpp>
#include <pentad/zero/local_average.hpp>
#include <pentad/zero/matrices.hpp>
#include <pentad/zero/offload.hpp>
#include <pentad/zero/offload_file.hpp>
#include <pentad/zero/optimizer.hpp>
#include <pentad/zero/reduction.hpp>
#include <pentad/zero/stack_moves.hpp>
#include <pentad/zero/store.hpp>
#include <pentad/zero/weight_bucket.hpp>
#include <pentad/zero/weights.hpp>
