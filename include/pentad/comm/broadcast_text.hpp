// A text that one rank has, on all of them.
#pragma once

#include <pentad/comm/error.hpp>

#include <mpi.h>

#include <cstddef>
#include <string>

namespace pentad::comm {

/// The text of `root`. Collective, and not counted in the ledger: it is for messages and settings.
inline std::string broadcast_text(MPI_Comm comm, std::string text, int root) {
    auto size = static_cast<int>(text.size());
    check(MPI_Bcast(&size, 1, MPI_INT, root, comm), "MPI_Bcast");
    text.resize(static_cast<std::size_t>(size));
    if (size > 0) check(MPI_Bcast(text.data(), size, MPI_CHAR, root, comm), "MPI_Bcast");
    return text;
}

} // namespace pentad::comm
