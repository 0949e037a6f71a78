// A layer of Mamba-2 or of linear attention, forward and backward, on one rank: mixers.py times it beside PyTorch. A
// line of JSON: seconds of a forward pass and of both passes, the medians of REPEATS.
//   bench_mixers mamba2|linear [REPEATS] [SEQ] [HIDDEN] [HEAD_DIM] [STATE] [CHUNK] [f32|bf16]
#include "drawn_parameters.hpp"
#include "median.hpp"

#include <pentad/comm/environment.hpp>
#include <pentad/context/recurrence.hpp>
#include <pentad/layers/linear_attention.hpp>
#include <pentad/layers/mamba2.hpp>
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
    std::size_t repeats, seq, hidden, head_dim, state, chunk;
};

template <class Layer, class Part>
void measure(Sizes const& sizes, Part const& part) {
    using T = typename Layer::input_layout::element;
    comm::Communicators communicators(MPI_COMM_WORLD, model::DenseMesh(1, 1, 1, 1));
    Context<Exec> const context(communicators);
    LayerSetup<Exec> const setup{.context = context, .hidden = sizes.hidden, .batch = 1, .seq = sizes.seq};
    Layer layer(setup, part, "layer");
    DrawnParameters<T, Exec> const parameters(context.exec(), layer);
    Tensor<typename Layer::input_layout, Exec> const x(context, {1, sizes.seq, sizes.hidden});
    Tensor<dual_t<typename Layer::output_layout>, Exec> const dy(context, {1, sizes.seq, sizes.hidden});
    kernels::fill<T, Exec>(context.exec(), x.flat(), T(0.1F));
    kernels::fill<T, Exec>(context.exec(), dy.array_flat(), T(0.1F));
    Pass<Exec> pass{.context = context};
    std::vector<double> forward, both;
    for (std::size_t i = 0; i < sizes.repeats + 1; ++i) {
        typename Layer::Saved saved;
        auto const start = std::chrono::steady_clock::now();
        auto const since = [&] {
            context.exec().fence();
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        };
        auto const y = layer.forward(pass, x, saved);
        double const half = since();
        (void)layer.backward_data(pass, dy, saved);
        layer.backward_weight(pass, saved);
        if (i == 0) continue; // the first one allocates
        forward.push_back(half);
        both.push_back(since());
    }
    std::printf("{\"forward\": %.6f, \"both\": %.6f}\n", median(forward), median(both));
}

template <class T>
void measure(std::string const& layer, Sizes const& s) {
    using Stream = InvariantStream<T>;
    if (layer == "mamba2")
        measure<typename Mamba2<context::Recurrence>::on<Stream, Exec>>(
            s, model::Mamba2{
                   .heads = 2 * s.hidden / s.head_dim, .head_dim = s.head_dim, .state = s.state, .chunk = s.chunk});
    else
        measure<typename LinearAttention<context::Recurrence>::on<Stream, Exec>>(
            s, model::LinearAttention{.heads = s.hidden / s.head_dim, .head_dim = s.head_dim, .chunk = s.chunk});
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    auto const number = [&](int i, std::size_t otherwise) {
        return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
    };
    std::string const layer = argc > 1 ? argv[1] : "mamba2", element = argc > 8 ? argv[8] : "f32";
    Sizes const sizes{number(2, 5), number(3, 2048), number(4, 1024), number(5, 64), number(6, 128), number(7, 256)};
    element == "bf16" ? measure<bf16>(layer, sizes) : measure<f32>(layer, sizes);
}
