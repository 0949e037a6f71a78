// What this process sends, counted behind MPI's profiling interface: it sees calls, datatypes and communicators, and
// shares nothing with the library's ledger. Linked into every MPI test program.
#pragma once

#include <cstdint>
#include <vector>

namespace pmpi {

struct Count {
    double bytes = 0;       ///< sent to other ranks; of collectives, what a bandwidth-optimal algorithm sends
    std::int64_t calls = 0; ///< of operations that move data
};

/// Since the process began, or since `clear`.
Count count();
void clear();

/// The send buffers of the equal all-to-alls of 64-bit integers since `clear`, in their order: the numbers of rows that
/// experts are about to be sent, where experts are what is tested.
std::vector<std::vector<std::int64_t>> const& exchanged_counts();

/// True while this thread is inside an MPI call: what is allocated then is the MPI library's.
bool inside_mpi();

} // namespace pmpi
