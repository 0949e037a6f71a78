// Context parallelism: attention over a sequence that is sharded over cp.
#pragma once

#include <pentad/context/all_gather.hpp>
#include <pentad/context/cached_attention.hpp>
#include <pentad/context/carry.hpp>
#include <pentad/context/double_ring.hpp>
#include <pentad/context/halo.hpp>
#include <pentad/context/head_exchange.hpp>
#include <pentad/context/recurrence.hpp>
#include <pentad/context/ring.hpp>
#include <pentad/context/selected.hpp>
#include <pentad/context/whole_keys.hpp>
