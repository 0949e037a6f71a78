// Collective matrix products, ring attention and experts whose ranks are on different hosts: the transfers beside the
// products, and before or behind them. lab/overlap.py starts it on hosts joined by links of a known rate. A line of
// JSON for each: seconds of the slowest rank, a list for each variant, measured in turn.
//   bench_overlap [REPEATS]
#include "drawn_parameters.hpp"
#include "pentad_tune/collective_calls.hpp"
#include "variants.hpp"

#include <pentad/comm/error.hpp>
#include <pentad/context/ring.hpp>
#include <pentad/experts/layer.hpp>
#include <pentad/layers/projection.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/zero/store.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Stream = SequenceStream<f32>;
using Gathered = GatheredStream<f32>;
using Column = ColumnParallel<ffn, hidden, Gathered, Exec>;
using Row = RowParallel<hidden, ffn, Column::output_layout, Exec>;
template <class Communication>
using ColumnProduct = InputProjection<Communication, Stream, Column>;
template <class Communication>
using RowProduct = OutputProjection<Communication, Row, Stream>;

int ranks = 1, rank = 0;
std::size_t repeats = 11;
constexpr std::size_t length = 4096, width = 1024, inner = 6144, heads_count = 16, kv_heads_count = 8;

void measure(char const* what, char const* passes, std::vector<Variant<double>> variants) {
    measure_in_turn(variants, repeats, [](auto const& f) { return collective_calls::seconds(MPI_COMM_WORLD, 1, f); });
    if (rank != 0) return;
    std::printf("{\"what\": \"%s\", \"passes\": \"%s\"", what, passes);
    print_and_end_line(variants);
}

template <class L>
Tensor<L, Exec> filled(Context<Exec> const& context, typename Tensor<L, Exec>::extents_type const& extents) {
    Tensor<L, Exec> tensor(context, extents);
    Kokkos::deep_copy(tensor.array_flat(), typename L::element(0.01F));
    return tensor;
}

/// A projection between the stream and `inner` columns. `Blocked` and `Overlapping` are the same layer.
template <class Blocked, class Overlapping, class Map>
void measure_projection(char const* what, Context<Exec> const& context) {
    std::size_t const in = Map::input_layout::value.dimensions[2].name == hidden::name ? width : inner;
    std::array<std::size_t, 3> const x_extents{1, length, in}, y_extents{1, length, width + inner - in};
    Overlapping overlapped{Map(context, "w", {y_extents[2], x_extents[2]})};
    Blocked blocking{Map(context, "w", {y_extents[2], x_extents[2]})};
    Map plain(context, "w", {y_extents[2], x_extents[2]});
    using Store = zero::ParameterStore<f32, Exec>;
    constexpr std::size_t bucket = std::size_t{1} << 22;
    Store const stores[]{
        {context, overlapped, 1, {}, bucket}, {context, blocking, 1, {}, bucket}, {context, plain, 1, {}, bucket}};

    using X = typename Blocked::input_layout;
    using Y = std::conditional_t<std::is_same_v<X, Stream>, typename Map::output_layout, Stream>;
    auto const x = filled<X>(context, x_extents);
    auto const dy = filled<dual_t<Y>>(context, y_extents);
    auto const inner_x = filled<typename Map::input_layout>(context, x_extents);
    auto const inner_dy = filled<dual_t<typename Map::output_layout>>(context, y_extents);
    auto const inner_y = filled<typename Map::output_layout>(context, y_extents);
    auto const inner_dx = filled<dual_t<typename Map::input_layout>>(context, x_extents);
    for (bool const both : {false, true}) {
        auto const run = [&](auto const& layer) {
            return [&, both] {
                typename std::remove_cvref_t<decltype(layer)>::Saved saved;
                (void)layer.forward(x, saved);
                if (!both) return;
                (void)layer.backward_data(dy, saved);
                layer.backward_weight(saved);
            };
        };
        auto const compute = [&, both] {
            typename Map::Saved saved;
            (void)plain.forward(inner_x, saved);
            if (!both) return;
            (void)plain.backward_data(inner_dy, saved);
            plain.backward_weight(saved);
        };
        auto const communicate = [&, both] {
            if constexpr (std::is_same_v<X, Stream>) {
                (void)redistribute<typename Map::input_layout>(x);
                if (both) (void)redistribute<dual_t<Stream>>(inner_dx);
            } else {
                (void)redistribute<Stream>(inner_y);
                if (both) (void)redistribute<dual_t<typename Map::output_layout>>(dy);
            }
        };
        measure(what, both ? "forward and backward" : "forward",
                {{"blocking", run(blocking)},
                 {"overlapped", run(overlapped)},
                 {"communication", communicate},
                 {"compute", compute}});
    }
}

using Query = Layout<f32, Dims<Dim<batch>, Dim<seq, dynamic, cp>, Dim<heads>, Dim<head_dim>>>;
using Key = Layout<f32, Dims<Dim<batch>, Dim<seq, dynamic, cp>, Dim<kv_heads>, Dim<head_dim>>>;

void measure_ring_attention(Context<Exec> const& context) {
    LayerSetup<Exec> const setup{
        .context = context, .hidden = width, .batch = 1, .seq = length, .block = {.zigzag = true}};
    using Overlapped = context::Ring<Overlap<2>>::on<Query, Key, Exec>;
    using Blocked = context::Ring<Blocking>::on<Query, Key, Exec>;
    std::size_t const dim = width / heads_count;
    Overlapped const overlapped(setup, {.head_dim = dim});
    Blocked const blocking(setup, {.head_dim = dim});
    std::array<std::size_t, 4> const q{1, length, heads_count, dim}, k{1, length, kv_heads_count, dim};
    auto const& comm = context.communicators().along(AxisNames(cp::name));
    auto const query = filled<Query>(context, q);
    auto const key = filled<Key>(context, k), value = filled<Key>(context, k), landing = filled<Key>(context, k);
    auto const dy = filled<dual_t<Query>>(context, q);
    for (bool const both : {false, true}) {
        auto const run = [&](auto const& layer) {
            return [&, both] {
                typename std::remove_cvref_t<decltype(layer)>::Saved saved;
                auto const output = layer.forward(query, key, value, saved);
                if (both) layer.backward(saved, output, dy, [](auto const&...) {});
            };
        };
        auto const communicate = [&, both] { // K and V; in the backward pass K, V, dK and dV
            for (int i = 0; i < (both ? 6 : 2) * (ranks - 1); ++i)
                comm::ring_shift(context.exec(), comm, key.flat(), landing.flat());
        };
        measure("ring attention", both ? "forward and backward" : "forward",
                {{"blocking", run(blocking)}, {"overlapped", run(overlapped)}, {"communication", communicate}});
    }
}

/// Experts on all ranks. `communication` is what their rows take alone: there and back, and again for the gradients.
void measure_experts(Context<Exec> const& context, std::size_t shared) {
    using Blocked = experts::Layer<Blocking>::on<InvariantStream<f32>, Exec>;
    using Overlapped = experts::Layer<Overlap<8>>::on<InvariantStream<f32>, Exec>;
    using Tokens = Blocked::input_layout;
    constexpr std::size_t tokens = 2048, experts_count = 16, top_k = 2;
    model::Experts const part{.count = experts_count, .top_k = top_k, .width = width, .shared = shared};
    auto const sequences = static_cast<std::size_t>(ranks);
    LayerSetup<Exec> const setup{.context = context, .hidden = width, .batch = sequences, .seq = tokens};
    Overlapped overlapped(setup, part, "overlapped");
    Blocked blocking(setup, part, "blocking");
    DrawnParameters<f32, Exec> const of_overlapped(context.exec(), overlapped), of_blocking(context.exec(), blocking);
    auto x = filled<Tokens>(context, {sequences, tokens, width});
    auto const dy = filled<dual_t<Tokens>>(context, {sequences, tokens, width});
    auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), x.flat());
    for (std::size_t i = 0; i < host.size(); ++i)
        host(i) = static_cast<float>(random::normal(3, static_cast<std::uint64_t>(rank), i));
    Kokkos::deep_copy(x.flat(), host);
    for (bool const both : {false, true}) {
        auto const run = [&](auto const& layer) {
            return [&, both] {
                Pass<Exec> pass{.context = context};
                typename std::remove_cvref_t<decltype(layer)>::Saved saved;
                (void)layer.forward(pass, x, saved);
                if (!both) return;
                (void)layer.backward_data(pass, dy, saved);
                layer.backward_weight(pass, saved);
            };
        };
        Pass<Exec> pass{.context = context};
        Blocked::Saved saved;
        (void)blocking.forward(pass, x, saved);
        auto const communicate = [&, both] {
            for (int i = 0; i < (both ? 2 : 1); ++i) {
                auto y = filled<Tokens>(context, x.extents());
                saved.dispatch.backward(context, saved.dispatch.forward(context, x.rows()).view(), y.rows());
            }
        };
        measure(shared > 0 ? "experts, one shared" : "experts", both ? "forward and backward" : "forward",
                {{"blocking", run(blocking)}, {"overlapped", run(overlapped)}, {"communication", communicate}});
    }
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc > 1) repeats = std::strtoull(argv[1], nullptr, 10);
    {
        comm::Communicators communicators(MPI_COMM_WORLD, model::DenseMesh(1, 1, 1, ranks));
        Context<Exec> const context(communicators);
        measure_projection<ColumnProduct<Blocking>, ColumnProduct<Overlap<2>>, Column>("all-gather and product",
                                                                                       context);
        measure_projection<RowProduct<Blocking>, RowProduct<Overlap<2>>, Row>("product and reduce-scatter", context);
    }
    {
        comm::Communicators communicators(MPI_COMM_WORLD, model::DenseMesh(1, 1, ranks, 1));
        Context<Exec> const context(communicators);
        measure_ring_attention(context);
    }
    comm::Communicators communicators(MPI_COMM_WORLD,
                                      model::with_experts(model::DenseMesh(ranks, 1, 1, 1), {.ep = ranks}));
    Context<Exec> const context(communicators);
    for (std::size_t const shared : {0, 1}) measure_experts(context, shared);
}
