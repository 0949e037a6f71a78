// Attention over a sequence that the ranks share: keys and values go round the ring of cp, or are gathered. Both give
// the same, and the ring never holds more than two blocks.
//
// ranks: 4
#include <pentad/comm.hpp>
#include <pentad/context.hpp>
#include <pentad/random.hpp>

#include <cmath>
#include <cstdio>

using namespace pentad;
using namespace pentad::ml;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Query = Layout<f64, Dims<Dim<batch>, Dim<seq, dynamic, cp>, Dim<heads>, Dim<head_dim>>>;
using Key = Layout<f64, Dims<Dim<batch>, Dim<seq, dynamic, cp>, Dim<kv_heads>, Dim<head_dim>>>;

template <class L>
Tensor<L, Exec> drawn(Context<Exec> const& context, std::array<std::size_t, 4> const& extents, std::string_view name) {
    Tensor<L, Exec> tensor(context, extents);
    auto const first = tensor.size() * static_cast<std::size_t>(context.communicators().coordinate("cp"));
    for (std::size_t i = 0; i < tensor.size(); ++i)
        tensor.flat()(i) = random::normal(1, random::stream(name), first + i);
    return tensor;
}

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    Mesh<Axis<cp>> const mesh([] {
        int ranks = 1;
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        return ranks;
    }());
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    Context<Exec> const context(communicators);

    // 2 sequences of 64 tokens; 4 heads of queries share 2 of keys and values. Causal, so that ranks are dealt pieces
    // from both ends of the sequence.
    LayerSetup<Exec> const setup{.context = context, .batch = 2, .seq = 64, .block = {.zigzag = true}};
    model::Attention const part{.heads = 4, .kv_heads = 2, .head_dim = 16};
    auto const attend = [&](auto const& strategy) {
        typename std::remove_cvref_t<decltype(strategy)>::Saved saved; // for the backward pass
        return strategy.forward(drawn<Query>(context, {2, 64, 4, 16}, "query"),
                                drawn<Key>(context, {2, 64, 2, 16}, "key"),
                                drawn<Key>(context, {2, 64, 2, 16}, "value"), saved);
    };
    auto const ring = attend(context::Ring<>::on<Query, Key, Exec>(setup, part));
    auto const gathered = attend(context::AllGather<>::on<Query, Key, Exec>(setup, part));
    double difference = 0;
    for (std::size_t i = 0; i < ring.size(); ++i)
        difference = std::max(difference, std::abs(ring.flat()(i) - gathered.flat()(i)));
    if (communicators.world().rank() == 0)
        std::printf("%s: the two strategies differ by %.1e\n", ring.describe().c_str(), difference);
    return difference < 1e-14 ? 0 : 1;
}
