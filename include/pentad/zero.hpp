// Parameters in buckets, and optimizers whose state is sharded (ZeRO).
#pragma once

#include <pentad/zero/bucket.hpp>
#include <pentad/zero/layouts.hpp>
#include <pentad/zero/optimizer.hpp>
#include <pentad/zero/sharding.hpp>
#include <pentad/zero/store.hpp>
