// The functions of <pentad/comm/progress.hpp>.
#pragma once

#include <pentad/comm/progress.hpp>

#include <pentad/mesh/inline.hpp>

#include <algorithm>

namespace pentad::comm {

PENTAD_INLINE int Progress::wait(MPI_Request& request) {
    if (active_.empty()) return MPI_Wait(&request, MPI_STATUS_IGNORE);
    int done = 0;
    for (Patience patience(shares_cores_); done == 0; patience.wait()) {
        int const code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) return code;
        advance();
    }
    return MPI_SUCCESS;
}

PENTAD_INLINE void Progress::finish(Pending const* operation) {
    auto const at = std::find_if(active_.begin(), active_.end(),
                                 [&](Entry const& entry) { return entry.operation.get() == operation; });
    at->idle->push_back(std::move(at->operation));
    active_.erase(at);
}

} // namespace pentad::comm
