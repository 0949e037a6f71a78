// ranks: 1 4 8
//
// Layers of tensor parallelism on a grid: the same numbers as on one rank, shares of everything, and the bytes of the
// closed forms.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/selected.hpp>
#include <pentad/layers/attention.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/layer_norm.hpp>
#include <pentad/layers/rms_norm.hpp>
#include <pentad/layout/ml.hpp>

#include <formulas/tensor_grid.hpp>
#include <support/layer_check.hpp>
#include <support/tensor_grid.hpp>

#include <mpi.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace support;

namespace {

constexpr std::size_t sequences = 8, length = 6, width = 16;

std::vector<TensorGridMesh> const grids{{1, 1, 1},           {1, 2, 2}, {1, 4, 1},
                                        {1, 1, 4},           {2, 1, 2}, {2, 2, 1},
                                        {2, 2, 2},           {1, 4, 2}, {1, 2, 2, {.dp = 2}},
                                        {1, 2, 2, {.cp = 2}}};

template <class Layer, class Stream>
auto make(LayerSetup<Exec> const& setup) {
    using On = typename Layer::template on<Stream, Exec>;
    if constexpr (std::is_same_v<Layer, PlainMlp<>>)
        return On(setup, model::PlainMlp{.width = 24, .has_bias = true}, "l");
    else if constexpr (std::is_same_v<Layer, GatedMlp<>>)
        return On(setup, model::GatedMlp{24}, "l");
    else if constexpr (std::is_same_v<Layer, Attention<context::Selected>>)
        return On(setup, model::Attention{.heads = 8, .kv_heads = 4, .head_dim = 2, .has_bias = true}, "l");
    else
        return On(setup, "l");
}

Arrays inputs() {
    Arrays arrays{{"x", drawn({sequences, length, width}, "x")}, {"dy", drawn({sequences, length, width}, "dy")}};
    for (std::string const name : {"gate", "up"}) arrays["l." + name + "_proj.weight"] = drawn({24, width}, name);
    arrays["l.up_proj.bias"] = drawn({24}, "up bias");
    arrays["l.down_proj.weight"] = drawn({width, 24}, "down");
    for (std::string const name : {"q", "k", "v"}) {
        std::size_t const heads = name == "q" ? 8 : 4;
        arrays["l." + name + "_proj.weight"] = drawn({heads, 2, width}, name);
        arrays["l." + name + "_proj.bias"] = drawn({heads, 2}, name + " bias");
    }
    arrays["l.o_proj.weight"] = drawn({width, 8, 2}, "o");
    arrays["l.weight"] = drawn({width}, "norm");
    arrays["l.bias"] = drawn({width}, "norm bias");
    return arrays;
}

template <class Layer>
void check() {
    auto const arrays = inputs();
    for (auto const& grid : grids_of_all_ranks(grids)) {
        INFO(grid.text());
        OnMesh const mesh(grid.shape(), grid.mesh());
        LayerSetup<Exec> const setup{.context = mesh.context, .hidden = width, .batch = sequences, .seq = length};
        auto const expected = on_one_rank(setup, make<Layer, InvariantStream<f64>>, arrays);
        check_layer(mesh, setup, make<Layer, GridStream<f64>>, expected);
        check_layer(mesh, setup, make<Layer, CubeStream<f64>>, expected);
    }
}

/// The bytes that a rank sends along tp in f(), in the mean.
template <class F>
double sent(F&& f) {
    observe::ledger().clear();
    f();
    return over_ranks(observe::ledger().bytes("tp")) / world_size();
}

/// What an MLP of one map to `ffn` and one back sends in its three passes.
struct MlpBytes {
    double forward, backward_data, backward_weight;
};
template <class Stream>
MlpBytes bytes_of_mlp(TensorGridMesh const& grid, std::size_t tokens, std::size_t hidden, std::size_t ffn) {
    OnMesh const mesh(grid.shape(), grid.mesh());
    LayerSetup<Exec> const setup{.context = mesh.context, .hidden = hidden, .batch = 8, .seq = tokens / 8};
    typename PlainMlp<>::template on<Stream, Exec> layer(setup, model::PlainMlp{.width = ffn}, "l");
    Parameters<f64> const parameters(layer, [&](std::string const& name) {
        return name.find("up") != name.npos ? drawn({ffn, hidden}, name) : drawn({hidden, ffn}, name);
    });
    Pass<Exec> pass{.context = mesh.context};
    typename PlainMlp<>::template on<Stream, Exec>::Saved saved;
    Tensor<Stream, Exec> x(mesh.context, {8, tokens / 8, hidden}), dy(mesh.context, x.extents());
    x.clear();
    dy.clear();
    MlpBytes bytes{};
    bytes.forward = sent([&] { (void)layer.forward(pass, x, saved); });
    bytes.backward_data = sent([&] { (void)layer.backward_data(pass, dy, saved); });
    bytes.backward_weight = sent([&] { layer.backward_weight(pass, saved); });
    return bytes;
}

} // namespace

TEST_CASE("SwiGLU on a grid is SwiGLU") { check<GatedMlp<>>(); }
TEST_CASE("GELU on a grid is GELU") { check<PlainMlp<>>(); }
TEST_CASE("attention on a grid is attention") { check<Attention<context::Selected>>(); }
TEST_CASE("RMSNorm of rows that ranks share is RMSNorm") { check<RmsNorm>(); }
TEST_CASE("LayerNorm of rows that ranks share is LayerNorm") { check<LayerNorm>(); }

TEST_CASE("a rank holds its share of a layer's weights and of what it saves, of which 1D shares out a part") {
    constexpr std::size_t tokens = 128, hidden = 64, ffn = 128;
    auto const held = []<class Stream>(OnMesh const& mesh, Stream) {
        LayerSetup<Exec> const setup{.context = mesh.context, .hidden = hidden, .batch = 8, .seq = tokens / 8};
        typename PlainMlp<>::template on<Stream, Exec> layer(setup, model::PlainMlp{.width = ffn}, "l");
        Parameters<f64> const parameters(layer, [&](std::string const& name) {
            return name.find("up") != name.npos ? drawn({ffn, hidden}, name) : drawn({hidden, ffn}, name);
        });
        std::size_t weights = 0;
        layer.for_each_parameter([&](auto const& parameter) { weights += parameter.size(); });
        auto const bytes = [] { return observe::counters()[observe::Memory::activations].bytes; };
        auto const before = bytes();
        Pass<Exec> pass{.context = mesh.context};
        typename PlainMlp<>::template on<Stream, Exec>::Saved saved;
        Tensor<typename PlainMlp<>::template on<Stream, Exec>::input_layout, Exec> x(mesh.context,
                                                                                     {8, tokens / 8, hidden});
        x.clear();
        (void)layer.forward(pass, std::move(x), saved);
        return std::pair(static_cast<double>(weights), static_cast<double>(bytes() - before) / sizeof(f64));
    };
    double const weights = 2 * hidden * ffn, saved = tokens * (hidden + 2 * ffn);
    for (auto const& grid : grids_of_all_ranks({{1, 2, 2}, {1, 4, 2}, {2, 2, 2}})) {
        INFO(grid.text());
        OnMesh const mesh(grid.shape(), grid.mesh());
        CHECK(held(mesh, GridStream<f64>()) == std::pair(weights * grid.first / grid.tp(), saved / grid.tp()));
        CHECK(held(mesh, CubeStream<f64>()) == std::pair(weights / grid.tp(), saved / grid.tp()));
        OnMesh const line({.tp = grid.tp()});
        CHECK(held(line, InvariantStream<f64>()) ==
              std::pair(weights / grid.tp(), tokens * (hidden + 2.0 * ffn / grid.tp())));
    }
}

TEST_CASE("a layer sends the bytes of the closed forms, as many in each of its passes") {
    constexpr std::size_t hidden = 64, ffn = 128;
    auto const check = [](MlpBytes const& bytes, double expected) {
        CHECK(bytes.forward == doctest::Approx(expected));
        CHECK(bytes.backward_data == doctest::Approx(expected));
        CHECK(bytes.backward_weight == doctest::Approx(expected));
    };
    auto const down = [](planner::GridMapSizes up) {
        std::swap(up.in, up.out);
        return up;
    };
    for (auto const& grid : grids_of_all_ranks({{1, 2, 2}, {1, 4, 2}, {2, 2, 2}})) {
        INFO(grid.text());
        planner::GridMapSizes const up{.tokens = 512,
                                       .in = hidden,
                                       .out = ffn,
                                       .rows = 1.0 * grid.second,
                                       .columns = 1.0 * grid.columns,
                                       .depth = 1.0 * grid.first};
        check(bytes_of_mlp<GridStream<f64>>(grid, 512, hidden, ffn),
              planner::grid_map_bytes(up) + planner::grid_map_bytes_where_x_stays(down(up)));
        CHECK(planner::grid_map_bytes_where_x_stays(down(up)) < planner::grid_map_bytes(down(up)));
    }
    for (auto const& grid : grids_of_all_ranks({{2, 2, 2}})) {
        planner::GridMapSizes up{.tokens = 64, .in = hidden, .out = ffn, .rows = 2, .columns = 2, .depth = 2};
        check(bytes_of_mlp<CubeStream<f64>>(grid, 64, hidden, ffn),
              planner::cube_map_bytes(up) + planner::cube_map_bytes(down(up)));
        up.tokens = 512;
        check(bytes_of_mlp<CubeStream<f64>>(grid, 512, hidden, ffn), 2 * planner::cube_map_bytes_where_y_stays(up));
        CHECK(planner::cube_map_bytes_where_y_stays(up) < planner::cube_map_bytes(up));
    }
}
