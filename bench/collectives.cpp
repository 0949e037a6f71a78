// The collectives beside those of the MPI library, in turn, on the same ranks: `mpiexec -n N bench_collectives`. A line
// of JSON for each operation and size; collectives.py makes a table and a picture of them.
#include <pentad/comm/collectives.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/tensor/context.hpp>
#include <pentad/tensor/view.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using namespace pentad;
using observe::Operation;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Floats = View<f32, 1, Exec>;

namespace {

int ranks = 1, rank = 0;

/// Seconds that a call of `f` takes, the slowest rank's, averaged over `times` calls after one that is not timed.
double seconds(int times, std::function<void()> const& f) {
    f();
    MPI_Barrier(MPI_COMM_WORLD);
    double const begin = MPI_Wtime();
    for (int i = 0; i < times; ++i) f();
    double spent = (MPI_Wtime() - begin) / times;
    MPI_Allreduce(MPI_IN_PLACE, &spent, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return spent;
}

struct Buffers {
    Floats in, out;
};

void run(Operation operation, comm::Communicator const& comm, Buffers const& x) {
    Exec const exec;
    switch (operation) {
    case Operation::all_reduce:
        return comm::all_reduce(exec, comm, x.in);
    case Operation::reduce_scatter:
        return comm::reduce_scatter(exec, comm, x.in, x.out);
    case Operation::all_gather:
        return comm::all_gather(exec, comm, x.in, x.out);
    case Operation::all_to_all:
        return comm::all_to_all(exec, comm, x.in, x.out);
    default:
        return comm::broadcast(exec, comm, x.in, 0);
    }
}
void run_mpi(Operation operation, comm::Communicator const& comm, Buffers const& x) {
    comm::forced_algorithm() = comm::Algorithm::mpi;
    run(operation, comm, x);
    comm::forced_algorithm() = comm::Algorithm::automatic;
}

/// Bytes that the ranks together must read and write in memory, for `bytes` bytes of the unscattered side on each.
double traffic(Operation operation, double bytes) {
    double const n = ranks;
    switch (operation) {
    case Operation::all_reduce:
        return 2 * n * bytes;
    case Operation::reduce_scatter:
        return (n + 1) * bytes;
    case Operation::all_gather:
        return (n + 1) * bytes;
    case Operation::all_to_all:
        return 2 * n * bytes;
    default:
        return n * bytes;
    }
}

/// Bytes a second that all ranks together read and write when each copies memory of its own.
double memory_bandwidth() {
    std::size_t const bytes = std::size_t{64} << 20;
    std::vector<char> from(bytes, 1), to(bytes, 2);
    double best = 1e9;
    for (int i = 0; i < 7; ++i) best = std::min(best, seconds(1, [&] { std::memcpy(to.data(), from.data(), bytes); }));
    return 2.0 * static_cast<double>(bytes) * ranks / best;
}

void measure(std::size_t smallest, std::size_t largest) {
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(ranks));
    Context<Exec> const context(communicators);
    auto const& comm = communicators.along(AxisNames(dp::name));
    auto const n = static_cast<std::size_t>(ranks);
    double const bandwidth = memory_bandwidth();
    auto const block_in = context.take(largest), block_out = context.take(largest);
    Kokkos::View<f32*, Exec> const own_in("in", largest / sizeof(f32)), own_out("out", largest / sizeof(f32));
    auto* const segment_in = static_cast<f32*>(block_in.data());
    auto* const segment_out = static_cast<f32*>(block_out.data());
    std::fill_n(segment_in, largest / sizeof(f32), 1.0F);
    std::fill_n(segment_out, largest / sizeof(f32), 1.0F);
    Kokkos::deep_copy(own_in, 1.0F);

    for (auto const operation : {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                 Operation::all_to_all, Operation::broadcast})
        for (std::size_t bytes = smallest; bytes <= largest; bytes *= 4) {
            std::size_t const whole = bytes / sizeof(f32), piece = whole / n;
            std::size_t const in = operation == Operation::all_gather ? piece : whole;
            std::size_t const out = operation == Operation::reduce_scatter ? piece : whole;
            Buffers const segment{Floats(segment_in, in), Floats(segment_out, out)};
            Buffers const outside{Floats(own_in.data(), in), Floats(own_out.data(), out)};
            struct Variant {
                char const* name;
                std::function<void()> call;
                std::vector<double> samples;
            };
            std::vector<Variant> variants{{"mpi", [&] { run_mpi(operation, comm, outside); }, {}},
                                          {"segment", [&] { run(operation, comm, segment); }, {}},
                                          {"outside", [&] { run(operation, comm, outside); }, {}},
                                          {"mpi_again", [&] { run_mpi(operation, comm, outside); }, {}}};
            double once = 0;
            for (auto& variant : variants) once = std::max(once, seconds(1, variant.call)); // and first touches
            once = std::max(once, seconds(1, variants[0].call));
            int const times = std::max(1, static_cast<int>(2e-3 / once));
            int const repeats = bytes >= (std::size_t{128} << 20) ? 7 : bytes >= (std::size_t{32} << 20) ? 11 : 21;
            for (int i = 0; i < repeats; ++i)
                for (auto& variant : variants) variant.samples.push_back(seconds(times, variant.call));
            if (rank != 0) continue;
            std::printf("{\"operation\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"bound\": %.4g",
                        std::string(observe::name(operation)).c_str(), ranks, bytes,
                        traffic(operation, static_cast<double>(bytes)) / bandwidth);
            for (auto const& variant : variants) {
                std::printf(", \"%s\": [", variant.name);
                for (std::size_t i = 0; i < variant.samples.size(); ++i)
                    std::printf("%s%.4g", i == 0 ? "" : ", ", variant.samples[i]);
                std::printf("]");
            }
            std::printf("}\n");
            std::fflush(stdout);
        }
}

std::size_t argument(int argc, char** argv, int i, std::size_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
}

} // namespace

/// bench_collectives [SMALLEST_BYTES [LARGEST_BYTES]]
int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    measure(argument(argc, argv, 1, 4096), argument(argc, argv, 2, std::size_t{256} << 20));
}
