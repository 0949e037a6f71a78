// The collectives beside those of the MPI library, in turn, on the same ranks: `mpiexec -n N bench_collectives`. A line
// of JSON for each operation and size; collectives.py makes a table and a picture of them.
#include "pentad_tune/collective_calls.hpp"
#include "variants.hpp"

#include <pentad/layout/ml.hpp>
#include <pentad/tensor/context.hpp>

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
using namespace pentad::ml;
using namespace collective_calls;

namespace {

int ranks = 1, rank = 0;

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
    for (int i = 0; i < 7; ++i)
        best = std::min(best, seconds(MPI_COMM_WORLD, 1, [&] { std::memcpy(to.data(), from.data(), bytes); }));
    return 2.0 * static_cast<double>(bytes) * ranks / best;
}

void measure(std::size_t smallest, std::size_t largest) {
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(ranks));
    Context<Exec> const context(communicators);
    auto const& comm = communicators.along(AxisNames(dp::name));
    double const bandwidth = memory_bandwidth();
    auto const block_in = context.take(largest), block_out = context.take(largest);
    Kokkos::View<f32*, Exec> const own_in("in", largest / sizeof(f32)), own_out("out", largest / sizeof(f32));
    auto* const segment_in = static_cast<f32*>(block_in.data());
    auto* const segment_out = static_cast<f32*>(block_out.data());
    std::fill_n(segment_in, largest / sizeof(f32), 1.0F);
    std::fill_n(segment_out, largest / sizeof(f32), 1.0F);
    Kokkos::deep_copy(own_in, 1.0F);

    for (auto const operation : operations)
        for (std::size_t bytes = smallest; bytes <= largest; bytes *= 4) {
            auto const segment = views(operation, bytes, ranks, segment_in, segment_out);
            auto const outside = views(operation, bytes, ranks, own_in.data(), own_out.data());
            auto const by = [&](Algorithm algorithm, Buffers const& buffers) {
                return [=, &comm] { call(algorithm, operation, comm, buffers); };
            };
            std::vector<Variant<double>> variants{{"mpi", by(Algorithm::mpi, outside)},
                                                  {"segment", by(Algorithm::automatic, segment), {}},
                                                  {"outside", by(Algorithm::automatic, outside)},
                                                  {"mpi_again", by(Algorithm::mpi, outside)}};
            double once = 0;
            for (auto& variant : variants)
                once =
                    std::max(once, seconds(MPI_COMM_WORLD, comm::node::CopyMethods::exchanges_to_learn, variant.call));
            int const times = std::max(4, static_cast<int>(2e-3 / once));
            std::size_t const repeats = bytes >= (std::size_t{128} << 20)  ? 7
                                        : bytes >= (std::size_t{32} << 20) ? 11
                                                                           : 21;
            measure_in_turn(variants, repeats, [&](auto const& f) { return seconds(MPI_COMM_WORLD, times, f); });
            if (rank != 0) continue;
            std::printf("{\"operation\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"bound\": %.4g",
                        std::string(observe::name(operation)).c_str(), ranks, bytes,
                        traffic(operation, static_cast<double>(bytes)) / bandwidth);
            print_and_end_line(variants);
            std::fflush(stdout); // shows progress where the output is piped
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
