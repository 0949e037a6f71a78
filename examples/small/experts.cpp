// A layer of experts by itself: 8 experts over 4 ranks, each token goes to the ranks of its 2 and comes back. What
// comes out does not depend on where the experts are.
//
// ranks: 4
#include <pentad/comm.hpp>
#include <pentad/experts.hpp>
#include <pentad/model.hpp>
#include <pentad/observe.hpp>
#include <pentad/random.hpp>
#include <pentad/zero.hpp>

#include <cmath>
#include <cstdio>

using namespace pentad;
using namespace pentad::ml;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Stream = SequenceStream<f64>; // each rank has tokens of its own

/// The first token's output, of 16 sequences of 4 tokens, on a mesh.
template <class M>
double first_output(MPI_Comm ranks, M const& mesh) {
    comm::Communicators communicators(ranks, mesh);
    Context<Exec> const context(communicators);
    experts::Layer<>::on<Stream, Exec> layer({.context = context, .hidden = 32, .batch = 16, .seq = 4},
                                             {.count = 8, .top_k = 2, .width = 64}, "experts");
    zero::ParameterStore<f64, Exec> const store(context, layer, 1, {}, 1 << 20);
    Tensor<Stream, Exec> x(context, {16, 4, 32});
    std::size_t const first = x.size() * communicators.shard_index(AxisNames("dp"));
    for (std::size_t i = 0; i < x.size(); ++i) x.flat()(i) = random::normal(1, random::stream("x"), first + i);
    Pass<Exec> pass{.context = context};
    experts::Layer<>::on<Stream, Exec>::Saved saved;
    auto const y = redistribute<Stream>(layer.forward(pass, std::move(x), saved));
    if (communicators.world().size() > 1)
        std::printf("rank %d: its experts got %zu rows, it sent %g bytes along ep\n", communicators.world().rank(),
                    saved.dispatch.rows(), observe::ledger().bytes("ep"));
    return y.flat()(0);
}

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    // The four ranks share out the sequences, and the experts see them as ep = 4.
    double const together = first_output(MPI_COMM_WORLD, model::with_experts(model::DenseMesh(4, 1, 1, 1), {.ep = 4}));
    if (rank != 0) return 0;
    double const alone = first_output(MPI_COMM_SELF, model::with_experts(model::DenseMesh(1, 1, 1, 1), {}));
    return std::abs(together - alone) < 1e-14 ? 0 : 1;
}
