// A layer of experts, forward and backward, on the ranks of ep: experts.py times it beside transformers. Prints a line
// of JSON, with the median seconds of REPEATS on the slowest rank: a forward pass, both passes, and the same matrix
// products without routing, as a dense MLP does them.
//   bench_experts [REPEATS] [TOKENS] [HIDDEN] [EXPERTS] [WIDTH] [TOP_K] [f32|bf16]: TOKENS of each rank
#include "drawn_parameters.hpp"
#include "median.hpp"

#include <pentad/comm/environment.hpp>
#include <pentad/experts/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/model/mesh.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;

struct Sizes {
    std::size_t repeats, tokens, hidden, experts, width, top_k;
};

/// The slowest rank's.
double slowest(double seconds) {
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

/// The nine matrix products of a gated MLP's forward and backward passes, on TOKENS x TOP_K rows: the mean of a rank.
template <class T>
class DenseProducts {
  public:
    explicit DenseProducts(Sizes const& s)
        : x_("x", s.tokens * s.top_k, s.hidden), inner_("inner", s.tokens * s.top_k, s.width),
          weight_("weight", s.width, s.hidden), gradient_("gradient", s.width, s.hidden) {
        Kokkos::deep_copy(x_, T(0.1F));
        Kokkos::deep_copy(inner_, T(0.1F));
        Kokkos::deep_copy(weight_, T(0.1F));
    }
    void operator()(Exec const& exec) const {
        using kernels::gemm;
        constexpr auto plain = kernels::Transpose::no, transposed = kernels::Transpose::yes;
        for (int i = 0; i < 2; ++i) gemm(exec, plain, transposed, 1.0, x_, weight_, 0.0, inner_); // gate, up
        gemm(exec, plain, plain, 1.0, inner_, weight_, 0.0, x_);                                  // down
        gemm(exec, plain, transposed, 1.0, x_, weight_, 0.0, inner_);
        for (int i = 0; i < 2; ++i) gemm(exec, plain, plain, 1.0, inner_, weight_, 0.0, x_);
        for (int i = 0; i < 3; ++i) gemm(exec, transposed, plain, 1.0, inner_, x_, 0.0, gradient_);
    }

  private:
    using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Exec>;
    Matrix x_, inner_, weight_;
    Kokkos::View<accumulator_t<T>**, Kokkos::LayoutRight, Exec> gradient_;
};

template <class T>
void measure(Sizes const& sizes) {
    using Layer = experts::Layer<Overlap<4>>::on<InvariantStream<T>, Exec>;
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    comm::Communicators communicators(MPI_COMM_WORLD,
                                      model::with_experts(model::DenseMesh(ranks, 1, 1, 1), {.ep = ranks}));
    Context<Exec> const context(communicators);
    auto const batch = static_cast<std::size_t>(ranks);
    LayerSetup<Exec> const setup{.context = context, .hidden = sizes.hidden, .batch = batch, .seq = sizes.tokens};
    Layer layer(setup, {.count = sizes.experts, .top_k = sizes.top_k, .width = sizes.width}, "layer");
    DrawnParameters<T, Exec> const parameters(context.exec(), layer);
    Tensor<typename Layer::input_layout, Exec> const x(context, {batch, sizes.tokens, sizes.hidden});
    Tensor<dual_t<typename Layer::output_layout>, Exec> const dy(context, {batch, sizes.tokens, sizes.hidden});
    auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), x.flat());
    for (std::size_t i = 0; i < host.size(); ++i)
        host(i) = T(static_cast<accumulator_t<T>>(
            random::normal(3, static_cast<std::uint64_t>(communicators.coordinate("dp")), i)));
    Kokkos::deep_copy(x.flat(), host);
    kernels::fill<T, Exec>(context.exec(), dy.array_flat(), T(0.1F));
    DenseProducts<T> const products(sizes);
    Pass<Exec> pass{.context = context, .balance_scale = 0.01};
    std::vector<double> forward, both, dense;
    for (std::size_t i = 0; i < sizes.repeats + 1; ++i) {
        typename Layer::Saved saved;
        MPI_Barrier(MPI_COMM_WORLD);
        auto start = std::chrono::steady_clock::now();
        auto const since = [&] {
            context.exec().fence();
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        };
        auto const y = layer.forward(pass, x, saved);
        double const half = since();
        (void)layer.backward_data(pass, dy, saved);
        layer.backward_weight(pass, saved);
        double const all = since();
        MPI_Barrier(MPI_COMM_WORLD);
        start = std::chrono::steady_clock::now();
        products(context.exec());
        double const of_products = since();
        if (i == 0) continue; // the first one allocates
        forward.push_back(slowest(half));
        both.push_back(slowest(all));
        dense.push_back(slowest(of_products));
    }
    if (communicators.coordinate("dp") == 0)
        std::printf("{\"ranks\": %d, \"forward\": %.6f, \"both\": %.6f, \"dense\": %.6f, \"of_gemm_speed\": %.3f}\n",
                    ranks, median(forward), median(both), median(dense), median(dense) / median(both));
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    auto const number = [&](int i, std::size_t otherwise) {
        return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
    };
    std::string const element = argc > 7 ? argv[7] : "f32";
    Sizes const sizes{number(1, 5), number(2, 4096), number(3, 1024), number(4, 32), number(5, 512), number(6, 4)};
    element == "bf16" ? measure<bf16>(sizes) : measure<f32>(sizes);
}
