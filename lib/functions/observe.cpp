#define PENTAD_INLINE
#include <pentad/observe/impl/dry_run.hpp>
#include <pentad/observe/impl/ledger.hpp>
#include <pentad/observe/impl/trace.hpp>
