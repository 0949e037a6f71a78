// What pentad_tune and the benchmarks call, and how long it takes.
#pragma once

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/memory/view.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <array>
#include <cstddef>

namespace collective_calls {

using Exec = Kokkos::DefaultHostExecutionSpace;
using Floats = pentad::View<pentad::f32, 1, Exec>;
using pentad::comm::Algorithm;
using pentad::observe::Operation;

inline constexpr std::array operations{Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                       Operation::all_to_all, Operation::broadcast};

struct Buffers {
    Floats in, out;
};
/// The views of a call with `bytes` bytes of the unscattered side, cut into equal pieces for the ranks.
inline Buffers views(Operation operation, std::size_t bytes, int ranks, pentad::f32* in, pentad::f32* out) {
    std::size_t const n = static_cast<std::size_t>(ranks), piece = bytes / sizeof(pentad::f32) / n, whole = piece * n;
    return {Floats(in, operation == Operation::all_gather ? piece : whole),
            Floats(out, operation == Operation::reduce_scatter ? piece : whole)};
}
/// The collective, by an algorithm.
inline void call(Algorithm algorithm, Operation operation, pentad::comm::Communicator const& comm, Buffers const& x) {
    pentad::comm::forced_algorithm() = algorithm;
    Exec const exec;
    if (operation == Operation::all_reduce) pentad::comm::all_reduce(exec, comm, x.in);
    if (operation == Operation::reduce_scatter) pentad::comm::reduce_scatter(exec, comm, x.in, x.out);
    if (operation == Operation::all_gather) pentad::comm::all_gather(exec, comm, x.in, x.out);
    if (operation == Operation::all_to_all) pentad::comm::all_to_all(exec, comm, x.in, x.out);
    if (operation == Operation::broadcast) pentad::comm::broadcast(exec, comm, x.in, 0);
    pentad::comm::forced_algorithm() = Algorithm::automatic;
}
/// Seconds that a call of `f` takes, the slowest rank's, averaged over `times` calls after one that is not timed.
/// Collective over `group`.
template <class F>
double seconds(MPI_Comm group, int times, F const& f) {
    f();
    MPI_Barrier(group);
    double const begin = MPI_Wtime();
    for (int i = 0; i < times; ++i) f();
    double spent = (MPI_Wtime() - begin) / times;
    MPI_Allreduce(MPI_IN_PLACE, &spent, 1, MPI_DOUBLE, MPI_MAX, group);
    return spent;
}

} // namespace collective_calls
