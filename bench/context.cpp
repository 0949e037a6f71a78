// Attention over cp by each strategy, forward and backward, on all ranks: lab/context.py starts it on hosts joined by
// links of a known rate, and on one host. A line of JSON for each: seconds of the slowest rank, measured in turn, and
// the bytes that the host which sends most sends to others.
//   bench_context INNER [REPEATS] [SEQ] [HEADS]: INNER ranks of cp are neighbours on a host
#include "pentad_tune/collective_calls.hpp"
#include "variants.hpp"

#include <pentad/comm/error.hpp>
#include <pentad/context/selected.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/observe/ledger.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Query = Layout<f32, Dims<Dim<batch>, Dim<seq, dynamic, cp>, Dim<heads>, Dim<head_dim>>>;
using Key = Layout<f32, Dims<Dim<batch>, Dim<seq, dynamic, cp>, Dim<kv_heads>, Dim<head_dim>>>;
using Strategy = context::Selected::on<Query, Key, Exec>;
constexpr std::size_t dim = 64;

template <class L>
Tensor<L, Exec> filled(Context<Exec> const& context, typename Tensor<L, Exec>::extents_type const& extents) {
    Tensor<L, Exec> tensor(context, extents);
    Kokkos::deep_copy(tensor.array_flat(), typename L::element(0.01F));
    return tensor;
}

/// The most bytes that the ranks of one host send to other hosts, as their ledgers count them.
double sent_by_a_host(comm::Communicator const& world) {
    std::vector<double> of_host(static_cast<std::size_t>(world.nodes().count()));
    of_host[static_cast<std::size_t>(world.nodes().mine())] = observe::ledger().network_bytes("cp");
    MPI_Allreduce(MPI_IN_PLACE, of_host.data(), static_cast<int>(of_host.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return *std::max_element(of_host.begin(), of_host.end());
}

void measure(int inner, std::size_t repeats, std::size_t length, std::size_t count) {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    auto const mesh = model::DenseMesh(1, 1, ranks, 1).split<cp>(inner);
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    Context<Exec> const context(communicators);
    auto const query = filled<Query>(context, {1, length, count, dim});
    auto const key = filled<Key>(context, {1, length, count, dim}),
               value = filled<Key>(context, {1, length, count, dim});
    auto const dy = filled<dual_t<Query>>(context, {1, length, count, dim});
    std::vector<std::pair<char const*, ContextStrategy>> const all{{"ring", ContextStrategy::ring},
                                                                   {"allgather", ContextStrategy::all_gather},
                                                                   {"two-level", ContextStrategy::heads_ring},
                                                                   {"double-ring", ContextStrategy::double_ring}};
    std::vector<Variant<double>> variants;
    std::vector<double> sent;
    for (auto const& [name, kind] : all) {
        auto const run =
            [&, strategy = Strategy(
                    {.context = context, .batch = 1, .seq = length, .block = {.context = kind, .zigzag = true}},
                    {.head_dim = dim})] {
                Strategy::Saved saved;
                auto const output = strategy.forward(query, key, value, saved);
                strategy.backward(saved, output, dy, [](auto const&...) {});
            };
        observe::ledger().clear();
        run(); // and warms up
        sent.push_back(sent_by_a_host(communicators.world()));
        variants.push_back({name, run});
    }
    measure_in_turn(variants, repeats, [](auto const& f) { return collective_calls::seconds(MPI_COMM_WORLD, 1, f); });
    if (communicators.world().rank() != 0) return;
    std::printf("{\"hosts\": %d", communicators.world().nodes().count());
    for (std::size_t i = 0; i < all.size(); ++i) std::printf(", \"%s bytes\": %.0f", all[i].first, sent[i]);
    print_and_end_line(variants);
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    auto const number = [&](int i, std::size_t otherwise) {
        return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
    };
    measure(static_cast<int>(number(1, 1)), number(2, 3), number(3, 16384), number(4, 4));
}
