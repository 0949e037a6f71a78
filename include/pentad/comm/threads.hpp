// How many threads a rank has, where ranks share a machine.
#pragma once

#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

namespace pentad::comm {

#ifdef KOKKOS_ENABLE_OPENMP
static_assert(environment::most_threads <= Kokkos::Impl::OpenMPTraits::MAX_THREAD_COUNT);
#endif

/// As many threads as there are processors for a rank (environment::threads_of_rank), where OMP_NUM_THREADS and
/// KOKKOS_NUM_THREADS do not say otherwise. Collective over all ranks.
inline Kokkos::InitializationSettings kokkos_settings() {
    Kokkos::InitializationSettings settings;
    settings.set_disable_warnings(true); // more ranks than cores is a usual thing here
    if (std::getenv("OMP_NUM_THREADS") != nullptr || std::getenv("KOKKOS_NUM_THREADS") != nullptr) return settings;
    char name[MPI_MAX_PROCESSOR_NAME]{};
    int length = 0, ranks = 1;
    MPI_Get_processor_name(name, &length);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::vector<char> names(static_cast<std::size_t>(ranks) * sizeof name);
    check(MPI_Allgather(name, sizeof name, MPI_CHAR, names.data(), sizeof name, MPI_CHAR, MPI_COMM_WORLD),
          "MPI_Allgather");
    int here = 0;
    for (int r = 0; r < ranks; ++r)
        here += std::string_view(name) == &names[static_cast<std::size_t>(r) * sizeof name] ? 1 : 0;
    auto const processors = static_cast<int>(std::thread::hardware_concurrency());
    settings.set_num_threads(environment::threads_of_rank(processors, here));
    return settings;
}

} // namespace pentad::comm
