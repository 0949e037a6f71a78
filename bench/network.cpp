// Collectives across hosts: in two levels, by the MPI library, and an all-reduce round one ring of all ranks; and what
// crossed the link. lab/network.py starts it on hosts joined by links of a known rate. A line of JSON for each.
//   bench_network BYTES... [--device NAME]
#include "lab/link.hpp"
#include "pentad_tune/collective_calls.hpp"
#include "variants.hpp"

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/context.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using namespace collective_calls;

namespace {

int ranks = 1, rank = 0;

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
            auto const by_mpi = [&] { call(Algorithm::mpi, operation, comm, buffers); };
            std::vector<Variant<lab::Sample>> variants{
                {"mpi", by_mpi},
                {"pentad", [&] { call(Algorithm::automatic, operation, comm, buffers); }},
                {"mpi_again", by_mpi}};
            if (operation == Operation::all_reduce)
                variants.push_back({"ring", [&] { ring_all_reduce(Exec(), comm, buffers.in, buffers.out); }});
            for (auto& variant : variants) variant.call(); // first touches
            measure_in_turn(variants, bytes > (std::size_t{4} << 20) ? 5 : 11,
                            [&](auto const& f) { return lab::sample(comm, f); });
            if (rank != 0) continue;
            std::printf("{\"operation\": \"%s\", \"ranks\": %d, \"nodes\": %zu, \"bytes\": %zu",
                        std::string(observe::name(operation)).c_str(), ranks,
                        comm.levels() == nullptr ? std::size_t{0} : comm.levels()->nodes(), bytes);
            print_and_end_line(variants);
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
            lab::device() = argv[++i];
        else
            sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    }
    if (sizes.empty()) sizes = {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20};
    measure(sizes);
}
