// What programs do, counted: the ledger of bytes, work, timelines, dry runs. Needs neither MPI nor Kokkos.
#pragma once

#include <pentad/observe/counters.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/observe/host_work.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/observe/trace.hpp>
