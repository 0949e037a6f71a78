// Collectives across hosts: in two levels, by the MPI library, and an all-reduce round one ring of all ranks; and what
// crossed the link. lab/network.py starts it on hosts joined by links of a known rate. A line of JSON for each.
//   bench_network BYTES... [--device NAME]
#include "pentad_tune/collective_calls.hpp"

#include <pentad/kernels/elementwise.hpp>
#include <pentad/tensor/context.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

using namespace pentad;
using namespace collective_calls;

namespace {

int ranks = 1, rank = 0;
std::string device = "eth0";

/// Bytes that the device of this host has sent.
double sent_by_device() {
    std::ifstream file("/proc/net/dev");
    for (std::string line; std::getline(file, line);) {
        auto const colon = line.find(':');
        if (colon == std::string::npos ||
            line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' ')) != device)
            continue;
        unsigned long long fields[9]{};
        char const* at = line.c_str() + colon + 1;
        for (auto& field : fields) {
            char* end = nullptr;
            field = std::strtoull(at, &end, 10);
            at = end;
        }
        return static_cast<double>(fields[8]);
    }
    return 0;
}

struct Sample {
    double seconds, bytes; ///< the slowest rank's; what the device that sent most has sent
};
Sample sample(std::function<void()> const& f) {
    MPI_Barrier(MPI_COMM_WORLD);
    double const before = sent_by_device(), begin = MPI_Wtime();
    MPI_Barrier(MPI_COMM_WORLD);
    f();
    double measured[2]{MPI_Wtime() - begin, 0};
    MPI_Barrier(MPI_COMM_WORLD);
    measured[1] = sent_by_device() - before;
    MPI_Allreduce(MPI_IN_PLACE, measured, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return {measured[0], measured[1]};
}

/// The all-reduce that knows of no nodes: reduce-scatter and all-gather round the ring of all ranks.
void ring_all_reduce(Exec const& exec, comm::Communicator const& comm, Floats const& x, Floats const& arriving) {
    auto const n = static_cast<std::size_t>(ranks), piece = x.size() / n;
    auto const at = [&](std::size_t i) { return Floats(x.data() + i % n * piece, piece); };
    auto const me = static_cast<std::size_t>(rank);
    Floats const in(arriving.data(), piece);
    for (std::size_t step = 0; step + 1 < n; ++step) {
        comm::ring_shift(exec, comm, at(me + n - step), in);
        kernels::add<f32>(exec, in, at(me + 2 * n - step - 1));
    }
    for (std::size_t step = 0; step + 1 < n; ++step)
        comm::ring_shift(exec, comm, at(me + n + 1 - step), at(me + n - step));
}

void measure(std::vector<std::size_t> const& sizes) {
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(ranks));
    Context<Exec> const context(communicators);
    auto const& comm = communicators.along(AxisNames(dp::name));
    std::size_t const most = *std::max_element(sizes.begin(), sizes.end());
    auto const block_in = context.take(most), block_out = context.take(most);
    auto* const in = static_cast<f32*>(block_in.data());
    auto* const out = static_cast<f32*>(block_out.data());
    std::fill_n(in, most / sizeof(f32), 0.0F);
    for (auto const operation : operations)
        for (std::size_t const bytes : sizes) {
            auto const buffers = views(operation, bytes, ranks, in, out);
            struct Variant {
                char const* name;
                std::function<void()> call;
                std::vector<Sample> samples;
            };
            auto const by_mpi = [&] { call(Algorithm::mpi, operation, comm, buffers); };
            std::vector<Variant> variants{{"mpi", by_mpi, {}},
                                          {"pentad", [&] { call(Algorithm::automatic, operation, comm, buffers); }, {}},
                                          {"mpi_again", by_mpi, {}}};
            if (operation == Operation::all_reduce)
                variants.push_back({"ring", [&] { ring_all_reduce(Exec(), comm, buffers.in, buffers.out); }, {}});
            for (auto& variant : variants) variant.call(); // first touches
            int const repeats = bytes > (std::size_t{4} << 20) ? 5 : 11;
            for (int i = 0; i < repeats; ++i)
                for (auto& variant : variants) variant.samples.push_back(sample(variant.call));
            if (rank != 0) continue;
            std::printf("{\"operation\": \"%s\", \"ranks\": %d, \"nodes\": %zu, \"bytes\": %zu",
                        std::string(observe::name(operation)).c_str(), ranks,
                        comm.levels() == nullptr ? std::size_t{0} : comm.levels()->nodes(), bytes);
            for (auto const& variant : variants) {
                std::printf(", \"%s\": [", variant.name);
                for (std::size_t i = 0; i < variant.samples.size(); ++i)
                    std::printf("%s[%.4g, %.0f]", i == 0 ? "" : ", ", variant.samples[i].seconds,
                                variant.samples[i].bytes);
                std::printf("]");
            }
            std::printf("}\n");
            std::fflush(stdout);
        }
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::vector<std::size_t> sizes;
    for (int i = 1; i < argc; ++i) {
        if (std::string(argv[i]) == "--device" && i + 1 < argc)
            device = argv[++i];
        else
            sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    }
    if (sizes.empty()) sizes = {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20};
    measure(sizes);
}
