// The pairing of a value and a gradient in which redistributions have their adjoints.
#pragma once

#include "support/holding.hpp"

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace support {

/// <a, b>: a sum over ranks, and once over axes along which both are invariant. Collective over the world.
inline double pairing(Holding const& mine, std::vector<double> const& a, std::vector<double> const& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    if (!mine.counts()) sum = 0;
    PMPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

} // namespace support
