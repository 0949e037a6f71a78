// What went wrong on some ranks, on all of them.
#pragma once

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/comm/error.hpp>

#include <mpi.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

namespace pentad::comm {

struct Failure {
    int kind = 0; ///< the caller's
    std::string text;
};

/// The failure of the first rank that has one, on all ranks. A rank that waits leaves its processor to the others.
/// Collective.
inline std::optional<Failure> first_failure(MPI_Comm comm, std::optional<Failure> const& own) {
    int rank = 0, size = 1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int failed = own ? rank : size;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, comm, &request), "MPI_Iallreduce");
    for (int done = 0;;) {
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done != 0) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (failed == size) return std::nullopt;
    Failure first = own.value_or(Failure());
    check(MPI_Bcast(&first.kind, 1, MPI_INT, failed, comm), "MPI_Bcast");
    first.text = broadcast_text(comm, std::move(first.text), failed);
    return first;
}

} // namespace pentad::comm
