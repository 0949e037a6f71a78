// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/linear.hpp>
#include <pentad/layout/ml.hpp>

#include <support/layer_check.hpp>

using namespace support;

namespace {

bool fits(MeshShape const& m) { return m.pp == 1 && 4 % (m.dp * m.ep) == 0 && 12 % m.tp == 0; }
bool fits_sequence_parallel(MeshShape const& m) { return fits(m) && 12 % (m.cp * m.tp) == 0; }

/// A linear map with the redistributions that a stream of layout From before it and of layout To behind it need.
template <class From, class Map, class To>
struct Between {
    using input_layout = From;
    using output_layout = To;
    using Saved = typename Map::Saved;

    Map map;

    Tensor<To, Exec> forward(Pass<Exec>&, Tensor<From, Exec> x, Saved& saved) const {
        return redistribute<To>(map.forward(redistribute<typename Map::input_layout>(std::move(x)), saved));
    }
    Tensor<dual_t<From>, Exec> backward_data(Pass<Exec>&, Tensor<dual_t<To>, Exec> dy, Saved& saved) const {
        return redistribute<dual_t<From>>(
            map.backward_data(redistribute<dual_t<typename Map::output_layout>>(std::move(dy)), saved));
    }
    void backward_weight(Pass<Exec>&, Saved& saved) const { map.backward_weight(saved); }
    template <class F>
    void for_each_parameter(F&& f) {
        map.for_each_parameter(f);
    }
};

/// x [4, 12, in] -> y [4, 12, out], all drawn; y by three plain loops.
Arrays product(std::size_t in, std::size_t out) {
    Arrays arrays{{"x", drawn({4, 12, in}, "x")}, {"w", drawn({out, in}, "w")}, {"dy", drawn({4, 12, out}, "dy")}};
    Whole y{{4, 12, out}, std::vector<double>(48 * out, 0.0)};
    for (std::size_t t = 0; t < 48; ++t)
        for (std::size_t o = 0; o < out; ++o)
            for (std::size_t i = 0; i < in; ++i)
                y.values[t * out + o] += arrays["x"].values[t * in + i] * arrays["w"].values[o * in + i];
    arrays["y"] = y;
    return arrays;
}

template <class Layer>
void check_linear(std::vector<MeshShape> const& on, Arrays arrays) {
    auto const make = [out = arrays.at("w").extents[0], in = arrays.at("w").extents[1]](LayerSetup<Exec> const& s) {
        return Layer{{s.context, "w", {out, in}}};
    };
    Whole const plain = arrays.at("y");
    arrays["w.weight"] = arrays.at("w");
    for (auto const& m : on) {
        OnMesh const mesh(m);
        LayerSetup<Exec> const setup{.context = mesh.context, .batch = 4, .seq = 12};
        if (!arrays.contains("dx")) arrays = on_one_rank(setup, make, arrays);
        arrays["y"] = plain;
        check_layer(mesh, setup, make, arrays);
    }
}

/// x W^T + b on every mesh is what one rank gives, and its gradients are the slopes.
template <class Layer>
void check_bias(std::vector<MeshShape> const& on, std::size_t in, std::size_t out) {
    auto const make = [&](LayerSetup<Exec> const& s) { return Layer{{s.context, "w", {out, in}, true}}; };
    Arrays arrays{{"x", drawn({4, 12, in}, "x")},
                  {"dy", drawn({4, 12, out}, "dy")},
                  {"w.weight", drawn({out, in}, "w")},
                  {"w.bias", drawn({out}, "b")}};
    for (auto const& m : on) {
        OnMesh const mesh(m);
        LayerSetup<Exec> const setup{.context = mesh.context, .batch = 4, .seq = 12};
        if (!arrays.contains("y")) {
            arrays = on_one_rank(setup, make, arrays);
            for (std::size_t i = 0; i < 48; ++i) // by hand
                for (std::size_t o = 0; o < out; ++o) {
                    double sum = arrays["w.bias"].values[o];
                    for (std::size_t k = 0; k < in; ++k)
                        sum += arrays["x"].values[i * in + k] * arrays["w.weight"].values[o * in + k];
                    CHECK(arrays["y"].values[i * out + o] == doctest::Approx(sum).epsilon(1e-12));
                }
        }
        check_layer(mesh, setup, make, arrays);
    }
}

using Invariant = InvariantStream<f64>;
using Sharded = SequenceStream<f64>;
using Column = ColumnParallel<ffn, hidden, GatheredStream<f64>, Exec>;
using Row = RowParallel<hidden, ffn, Column::output_layout, Exec>;
using Unsharded = Layout<f64, Dims<Dim<ffn>, Dim<hidden>>>;

template <class L>
std::string text() {
    return std::string(layout_text<L>.view());
}

} // namespace

TEST_CASE("a column-parallel product, behind a stream that is invariant over tp, or that tp shards") {
    check_linear<Between<Invariant, Column, Column::output_layout>>(meshes(fits), product(8, 12));
    check_linear<Between<Sharded, Column, Column::output_layout>>(meshes(fits_sequence_parallel), product(8, 12));
    CHECK(text<Column::output_layout>() == "f64[batch@dp:?, seq@cp:?, ffn@tp:?]");
    CHECK(text<Column::parameter_type::gradient_layout>() == "f64[ffn@tp:?, hidden:?]{dp.cp: partial}");
}

TEST_CASE("a row-parallel product gives partial sums, reduced to the stream or scattered into it") {
    check_linear<Between<Column::output_layout, Row, Invariant>>(meshes(fits), product(12, 8));
    check_linear<Between<Column::output_layout, Row, Sharded>>(meshes(fits_sequence_parallel), product(12, 8));
    CHECK(text<Row::output_layout>() == "f64[batch@dp:?, seq@cp:?, hidden:?]{tp: partial}");
    CHECK(text<Row::parameter_type::gradient_layout>() == "f64[hidden:?, ffn@tp:?]{dp.cp: partial}");
}

TEST_CASE("a bias lies as the outputs do, and its gradient is summed over the same axes as theirs") {
    check_bias<Between<Invariant, Column, Column::output_layout>>(meshes(fits), 8, 12);
    using OnSharded = Linear<Sharded, Unsharded, 1, Exec>;
    check_bias<Between<Sharded, OnSharded, OnSharded::output_layout>>(meshes(fits_sequence_parallel), 8, 12);
    CHECK(text<Column::bias_type::gradient_layout>() == "f64[ffn@tp:?]{dp.cp: partial}");
    CHECK(text<OnSharded::bias_type::gradient_layout>() == "f64[ffn:?]{dp.cp.tp: partial}");
}

TEST_CASE("a map that gives summands has no bias") {
    OnMesh const mesh({.tp = world_size()});
    CHECK_THROWS_WITH_AS((Row(mesh.context, "down_proj", {8, 12}, true)),
                         "down_proj: a bias is added to whole values, and this map gives summands",
                         std::invalid_argument);
}

TEST_CASE(
    "a weight that tp does not shard: its gradient is partial over tp where tp shards the sequence, and only there") {
    using OnInvariant = Linear<Invariant, Unsharded, 1, Exec>;
    using OnSharded = Linear<Sharded, Unsharded, 1, Exec>;
    check_linear<Between<Invariant, OnInvariant, OnInvariant::output_layout>>(meshes(fits), product(8, 12));
    check_linear<Between<Sharded, OnSharded, OnSharded::output_layout>>(meshes(fits_sequence_parallel), product(8, 12));
    CHECK(text<OnInvariant::parameter_type::gradient_layout>() == "f64[ffn:?, hidden:?]{dp.cp: partial}");
    CHECK(text<OnSharded::parameter_type::gradient_layout>() == "f64[ffn:?, hidden:?]{dp.cp.tp: partial}");
}

namespace {

/// The arrays of a file, its weights under the names that the layer gives them.
Arrays feed_forward(std::string const& name) {
    Arrays arrays = golden(name);
    for (std::string const weight : {"gate", "up", "down"})
        for (std::string const d : {"", "d"})
            if (arrays.contains(d + weight)) arrays[d + "mlp." + weight + "_proj.weight"] = arrays.at(d + weight);
    return arrays;
}

template <class FeedForward, class Described>
void check_feed_forward(Arrays const& arrays) {
    for (auto const& m : meshes(fits)) {
        OnMesh const mesh(m);
        LayerSetup<Exec> const setup{
            .context = mesh.context, .hidden = 8, .batch = 4, .seq = 12, .block = {.zigzag = 6 % m.cp == 0}};
        check_layer(
            mesh, setup,
            [](LayerSetup<Exec> const& s) {
                return typename FeedForward::template on<Invariant, Exec>(s, Described{12}, "mlp");
            },
            arrays);
    }
}

} // namespace

TEST_CASE("SwiGLU is PyTorch's on any mesh") {
    check_feed_forward<GatedMlp<>, model::GatedMlp>(feed_forward("swiglu"));
}
TEST_CASE("the GELU block is PyTorch's on any mesh") {
    check_feed_forward<PlainMlp<>, model::PlainMlp>(feed_forward("gelu"));
}
