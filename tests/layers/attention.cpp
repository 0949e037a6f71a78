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

constexpr std::array strategies{ContextStrategy::ring, ContextStrategy::all_gather, ContextStrategy::double_ring,
                                ContextStrategy::heads_ring, ContextStrategy::ring_heads};

/// 6 heads over tp; kv heads over tp, or replicated over groups of ranks of tp.
void check_attention(std::string const& file, std::size_t kv_heads, Sight const& sight = {}) {
    Arrays arrays = golden(file);
    for (std::string const weight : {"q", "k", "v", "o"})
        for (std::string const d : {"", "d"})
            arrays[d + "self_attn." + weight + "_proj.weight"] = arrays.at(d + weight);
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
                                             .order = order,
                                             .context_strategy = strategy};
                PackedTokens<InvariantStream<f64>> const packed(setup, arrays);
                check_layer(
                    mesh, setup,
                    [&](LayerSetup<Exec> const& s) {
                        return Layer(s, {.heads = 6, .kv_heads = kv_heads, .head_dim = 4, .sight = sight}, "self_attn");
                    },
                    arrays, 1e-12, 0, 0, packed.map());
            }
}

} // namespace

TEST_CASE("attention with grouped heads is PyTorch's on any mesh") {
    check_attention("attention", 2);
    CHECK(layout_text<Layer::KeyMap::parameter_type::gradient_layout>.view() ==
          "f64[kv_heads@outer(tp):?, head_dim:?, hidden:?]{dp.ep.cp.inner(tp): partial}");
    CHECK(layout_text<Layer::QueryMap::parameter_type::gradient_layout>.view() ==
          "f64[heads@tp:?, head_dim:?, hidden:?]{dp.ep.cp: partial}");
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
