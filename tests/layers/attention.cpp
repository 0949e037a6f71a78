// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/selected.hpp>
#include <pentad/layers/attention.hpp>

#include <support/layer_check.hpp>
#include <support/packed.hpp>

#include <array>

using namespace support;

namespace {

using Layer = Attention<context::Selected>::on<InvariantStream<f64>, Exec>;
template <class Stream>
using Exchanged = typename Attention<context::Selected, Blocking, ExchangedHeads>::template on<Stream, Exec>;

constexpr std::array strategies{ContextStrategy::ring, ContextStrategy::all_gather, ContextStrategy::double_ring,
                                ContextStrategy::heads_ring, ContextStrategy::ring_heads};

/// 6 heads over tp; kv heads over tp, or replicated over groups of ranks of tp.
template <class L = Layer>
void check_attention(std::string const& file, std::size_t kv_heads, Sight const& sight = {},
                     model::Scores const& scores = {}) {
    Arrays arrays = golden(file);
    for (std::string const weight : {"q", "k", "v", "o"})
        for (std::string const d : {"", "d"})
            arrays[d + "self_attn." + weight + "_proj.weight"] = arrays.at(d + weight);
    for (std::string const d : {"", "d"})
        if (scores.sinks) arrays[d + "self_attn.sinks"] = arrays.at(d + "sinks");
    auto const kv = static_cast<int>(kv_heads);
    auto const on = meshes([kv](MeshShape const& m) {
        return m.pp == 1 && 2 % (m.dp * m.ep) == 0 && 6 % m.tp == 0 && (kv % m.tp == 0 || m.tp % kv == 0);
    });
    for (auto const& m : on)
        for (auto const order : {Order::contiguous, Order::zigzag})
            for (auto const strategy : strategies) {
                if (m.cp == 1 && (order == Order::zigzag || strategy != ContextStrategy::ring)) continue;
                // Two levels of cp = 4 and 6; of others one level alone.
                int const inner_cp = m.cp % 2 == 0 ? 2 : m.cp;
                int const over = strategy == ContextStrategy::heads_ring   ? inner_cp
                                 : strategy == ContextStrategy::ring_heads ? m.cp / inner_cp
                                                                           : 1;
                if (6 / m.tp % over != 0) continue;
                INFO("by ", std::string(name(strategy)));
                OnMesh const mesh(m, OnMesh::mesh(m, static_cast<int>(kv_heads), inner_cp));
                LayerSetup<Exec> const setup{.context = mesh.context,
                                             .hidden = 24,
                                             .batch = 2,
                                             .seq = 24,
                                             .block = {.context = strategy, .zigzag = order == Order::zigzag}};
                PackedTokens<InvariantStream<f64>> const packed(setup, arrays);
                check_layer(
                    mesh, setup,
                    [&](LayerSetup<Exec> const& s) {
                        return L(s,
                                 {.heads = 6,
                                  .kv_heads = kv_heads,
                                  .head_dim = 4,
                                  .rotates = !scores.alibi,
                                  .sight = sight,
                                  .scores = scores},
                                 "self_attn");
                    },
                    arrays, 1e-12, 0, 0, packed.map());
            }
}

} // namespace

TEST_CASE("attention with grouped heads is PyTorch's on any mesh") {
    check_attention("attention", 2);
    CHECK(layout_text<Layer::KeyMap::parameter_type::gradient_layout>.view() ==
          "f64[kv_heads@outer(tp):?, head_dim:?, hidden:?]{dp.cp.inner(tp): partial}");
    CHECK(layout_text<Layer::QueryMap::parameter_type::gradient_layout>.view() ==
          "f64[heads@tp:?, head_dim:?, hidden:?]{dp.cp: partial}");
}
TEST_CASE("one kv head, replicated over all of tp: its weights' gradients are summed over tp") {
    check_attention("attention_one_kv_head", 1);
}

TEST_CASE("attention within a window, to all tokens, and within packed documents is PyTorch's with a dense mask") {
    check_attention("attention_window", 2, {.window = 5});
    check_attention("attention_full", 2, {.causal = false});
    check_attention("attention_packed", 2);
    check_attention("attention_packed_window", 3, {.window = 3});
}

TEST_CASE("attention with capped scores, ALiBi and sinks is PyTorch's with a dense matrix of scores") {
    check_attention("attention_soft_cap", 2, {}, {.soft_cap = 1.5});
    check_attention("attention_alibi", 2, {}, {.alibi = true});
    check_attention("attention_sinks", 2, {}, {.sinks = true});
    check_attention("attention_packed_alibi_sinks", 3, {.window = 9}, {.soft_cap = 2.5, .alibi = true, .sinks = true});
    CHECK(layout_text<Layer::Sinks::gradient_layout>.view() == "f64[heads@tp:?]{dp.cp: partial}");
}
TEST_CASE("heads that are exchanged for sequence, and projected by the whole projection on every rank, are the same") {
    check_attention<Exchanged<InvariantStream<f64>>>("attention", 2);
    check_attention<Exchanged<SequenceStream<f64>>>("attention", 2);
    check_attention<Exchanged<SequenceStream<f64>>>("attention_packed_alibi_sinks", 3, {.window = 9},
                                                    {.soft_cap = 2.5, .alibi = true, .sinks = true});
    using L = Exchanged<SequenceStream<f64>>;
    CHECK(layout_text<L::output_layout>.view() == layout_text<SequenceStream<f64>>.view());
    CHECK(layout_text<L::Output::map_type::parameter_type::gradient_layout>.view() ==
          "f64[hidden:?, heads:?, head_dim:?]{dp.cp.tp: partial}");
}
TEST_CASE("exchanging heads sends less than summing products from d t / (t - 1) tokens of all ranks of tp on") {
    int const n = world_size();
    if (n == 1 || 6 % n != 0) return;
    constexpr std::size_t width = 24, sequences = 2;
    OnMesh const mesh({.tp = n});
    // A step: the redistributions of the output and of its gradient, and the reduction of the weight's gradient.
    auto const sent = [&]<class Projection>(Projection, std::size_t tokens) {
        using Stream = SequenceStream<f64>;
        using L = typename Attention<context::Selected, Blocking, Projection>::template on<Stream, Exec>;
        using Output = typename L::Output;
        Output output(typename Output::map_type(mesh.context, "o", {width, 6, 4}));
        Tensor<typename L::Query, Exec> const x(mesh.context, {sequences, tokens / sequences, 6, 4});
        Tensor<dual_t<Stream>, Exec> const dy(mesh.context, {sequences, tokens / sequences, width});
        x.clear();
        dy.clear();
        Parameters<f64> const parameters(output, [&](std::string const&) { return drawn({width, 6, 4}, "o"); });
        observe::ledger().clear();
        typename Output::Saved saved;
        (void)redistribute<Stream>(output.forward(x, saved));
        (void)output.backward_data(redistribute<dual_t<typename L::output_layout>>(dy), saved);
        output.backward_weight(saved);
        output.for_each_parameter([](auto const& parameter) { (void)reduced_gradient(parameter); });
        return observe::ledger().bytes("tp");
    };
    auto const t = static_cast<std::size_t>(n);
    double const share = (n - 1.0) / n;
    for (std::size_t const tokens : {width, width * t / (t - 1) * 2, 4 * width}) {
        if (tokens % (sequences * t) != 0) continue;
        double const summed = sent(SummedHeads(), tokens), exchanged = sent(ExchangedHeads(), tokens);
        auto const real = static_cast<double>(tokens);
        double const stream = real * width * sizeof(f64), weight = width * width * sizeof(f64);
        CHECK(exchanged == doctest::Approx(share * (2 * stream / n + 2 * weight)));
        CHECK(summed == doctest::Approx(share * (2 * stream + weight))); // the weight, which the test gathers
        bool const is_less = exchanged < summed - share * weight;
        CHECK(is_less == (real > static_cast<double>(width * t) / static_cast<double>(t - 1)));
    }
}
TEST_CASE("attention refuses ALiBi beside rotary embedding, and a negative cap") {
    Alone const mesh;
    LayerSetup<Exec> const setup{.context = mesh.context, .hidden = 24, .batch = 2, .seq = 24};
    CHECK_THROWS_WITH(Layer(setup, {.scores = {.alibi = true}}, "a"),
                      "a: ALiBi takes the place of rotary embedding: set rotates = false");
    CHECK_THROWS_WITH(Layer(setup, {.scores = {.soft_cap = -1}}, "a"),
                      "a: scores are capped at a positive number, or 0: not at all");
}

TEST_CASE(
    "biases, and norms of queries and keys head by head: any mesh gives what one rank gives, with the right slopes") {
    constexpr std::size_t query_heads = 6, key_heads = 2, dim = 4, width = 24;
    Arrays arrays{{"x", drawn({2, 24, width}, "x")}, {"dy", drawn({2, 24, width}, "dy")}};
    for (std::string const name : {"q", "k", "v"}) {
        std::size_t const count = name == "q" ? query_heads : key_heads;
        arrays["self_attn." + name + "_proj.weight"] = drawn({count, dim, width}, name);
        arrays["self_attn." + name + "_proj.bias"] = drawn({count, dim}, name + " bias");
        arrays["self_attn." + name + "_norm.weight"] = drawn({dim}, name + " norm");
    }
    arrays["self_attn.o_proj.weight"] = drawn({width, query_heads, dim}, "o");
    auto const make = [](LayerSetup<Exec> const& s) {
        return Layer(s,
                     {.heads = query_heads,
                      .kv_heads = key_heads,
                      .head_dim = dim,
                      .has_bias = true,
                      .norms_queries_and_keys = true},
                     "self_attn");
    };
    for (auto const& m : meshes([](MeshShape const& m) {
             return m.pp == 1 && 2 % (m.dp * m.ep) == 0 && 6 % m.tp == 0 && (2 % m.tp == 0 || m.tp % 2 == 0);
         })) {
        INFO(m.text());
        OnMesh const mesh(m, key_heads);
        LayerSetup<Exec> const setup{.context = mesh.context, .hidden = width, .batch = 2, .seq = 24};
        if (!arrays.contains("y")) arrays = on_one_rank(setup, make, arrays);
        check_layer(mesh, setup, make, arrays, 1e-11);
    }
    CHECK(layout_text<used_t<Layer::KeyNorm::Weight, Layer::Key>>.view().find("tp") != std::string_view::npos);
}
