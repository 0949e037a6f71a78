// The collectives on arrays where the kernels run: on a GPU, among ranks that share it, with what staging costs.
// `mpiexec -n N bench_device_collectives [BYTES]`; a line of JSON for each operation, with the bytes that all ranks
// together must read and write.
#include "median.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/environment.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/tensor/context.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using observe::Operation;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Floats = View<f32, 1, Exec>;

/// An operation of `bytes` bytes on the side that is not scattered.
struct Collective {
    Operation operation;
    std::size_t bytes_moved; ///< of all ranks
    Floats in, out;
};

void call(Collective const& x, Exec const& exec, comm::Communicator const& comm) {
    if (x.operation == Operation::all_reduce) comm::all_reduce(exec, comm, x.in);
    if (x.operation == Operation::reduce_scatter) comm::reduce_scatter(exec, comm, x.in, x.out);
    if (x.operation == Operation::all_gather) comm::all_gather(exec, comm, x.in, x.out);
    if (x.operation == Operation::all_to_all) comm::all_to_all(exec, comm, x.in, x.out);
    if (x.operation == Operation::broadcast) comm::broadcast(exec, comm, x.in, 0);
    exec.fence();
}

void measure(std::size_t bytes) {
    int ranks = 1, rank = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(ranks));
    Context<Exec> const context(communicators);
    auto const& comm = communicators.along(AxisNames(dp::name));
    std::size_t const n = static_cast<std::size_t>(ranks), piece = bytes / sizeof(f32) / n, whole = piece * n;
    bytes = whole * sizeof(f32);
    Kokkos::View<f32*, Exec> const in("in", whole), out("out", whole);
    Kokkos::deep_copy(in, 1.0F);
    auto const side = [](auto const& buffer, std::size_t size) { return Floats(buffer.data(), size); };
    std::array const collectives{
        Collective{Operation::all_reduce, 2 * n * bytes, side(in, whole), side(out, whole)},
        Collective{Operation::reduce_scatter, (n + 1) * bytes, side(in, whole), side(out, piece)},
        Collective{Operation::all_gather, (n + 1) * bytes, side(in, piece), side(out, whole)},
        Collective{Operation::all_to_all, 2 * n * bytes, side(in, whole), side(out, whole)},
        Collective{Operation::broadcast, n * bytes, side(in, whole), side(out, whole)},
    };
    for (auto const& collective : collectives) {
        std::vector<double> samples;
        for (int i = 0; i < 8; ++i) {
            MPI_Barrier(MPI_COMM_WORLD);
            double const begin = MPI_Wtime();
            call(collective, context.exec(), comm);
            double seconds = MPI_Wtime() - begin;
            MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            if (i > 0) samples.push_back(seconds); // the first one allocates
        }
        if (rank != 0) continue;
        std::printf("{\"operation\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"bytes_moved\": %zu, \"seconds\": %.6g}\n",
                    std::string(observe::name(collective.operation)).c_str(), ranks, bytes, collective.bytes_moved,
                    median(samples));
        std::fflush(stdout);
    }
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    measure(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{1} << 26);
}
