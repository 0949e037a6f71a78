// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/whole_keys.hpp>
#include <pentad/layers/latent_attention.hpp>

#include <support/layer_check.hpp>
#include <support/packed.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

using namespace support;

namespace {

template <class Stream, class Projection = SummedHeads>
using LayerOn = typename LatentAttention<context::WholeKeys, Blocking, Projection>::template on<Stream, Exec>;
using Layer = LayerOn<InvariantStream<f64>>;

constexpr std::size_t sequences = 2, length = 24, width = 20;
/// Three widths that differ, and heads for tp = 1, 2, 3 and 6.
constexpr model::LatentAttention usual{
    .heads = 6, .head_dim = 5, .rope_dim = 4, .value_dim = 3, .query_rank = 7, .kv_rank = 8};

/// y = x W^T for rows of W of n columns.
std::vector<double> times(std::vector<double> const& x, Whole const& w, std::size_t n) {
    std::size_t const rows = x.size() / n, out = w.values.size() / n;
    std::vector<double> y(rows * out, 0);
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t o = 0; o < out; ++o)
            for (std::size_t i = 0; i < n; ++i) y[r * out + o] += x[r * n + i] * w.values[o * n + i];
    return y;
}
std::vector<double> normalised(std::vector<double> x, Whole const& weight) {
    std::size_t const n = weight.values.size();
    for (std::size_t r = 0; r < x.size(); r += n) {
        double squares = 0;
        for (std::size_t i = 0; i < n; ++i) squares += x[r + i] * x[r + i];
        for (std::size_t i = 0; i < n; ++i)
            x[r + i] *= weight.values[i] / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    }
    return x;
}
/// Columns [begin, end) of rows of n.
std::vector<double> columns(std::vector<double> const& x, std::size_t n, std::size_t begin, std::size_t end) {
    std::vector<double> part;
    for (std::size_t r = 0; r < x.size(); r += n)
        for (std::size_t i = begin; i < end; ++i) part.push_back(x[r + i]);
    return part;
}
/// Turns the n elements at x as the paper on rotary embedding has them: pairs of neighbours.
void turn(double* x, std::size_t n, double position, bool is_interleaved) {
    for (std::size_t i = 0; i < n / 2; ++i) {
        double const angle = position * std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(n));
        double& a = x[is_interleaved ? 2 * i : i];
        double& b = x[is_interleaved ? 2 * i + 1 : i + n / 2];
        double const turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
    }
}

/// The layer as the paper on DeepSeek-V2 states it, token by token. @param documents the number of each token's
std::vector<double> reference(model::LatentAttention const& part, Arrays const& arrays,
                              std::vector<std::size_t> const& documents, std::vector<std::size_t> const& positions) {
    auto const weight = [&](std::string const& name) { return arrays.at("self_attn." + name + ".weight"); };
    auto const& x = arrays.at("x").values;
    std::size_t const tokens = sequences * length, n = part.width();
    auto query = part.query_rank == 0 ? times(x, weight("q_proj"), width)
                                      : times(normalised(times(x, weight("q_a_proj"), width), weight("q_a_layernorm")),
                                              weight("q_b_proj"), part.query_rank);
    auto const down = times(x, weight("kv_a_proj_with_mqa"), width);
    std::size_t const both = part.kv_rank + part.rope_dim;
    auto rotary = columns(down, both, part.kv_rank, both);
    auto const heads = times(normalised(columns(down, both, 0, part.kv_rank), weight("kv_a_layernorm")),
                             weight("kv_b_proj"), part.kv_rank);
    for (std::size_t t = 0; t < tokens; ++t) {
        auto const position = static_cast<double>(positions[t]);
        turn(&rotary[t * part.rope_dim], part.rope_dim, position, part.rotary.is_interleaved);
        for (std::size_t h = 0; h < part.heads; ++h)
            turn(&query[(t * part.heads + h) * n + part.head_dim], part.rope_dim, position, part.rotary.is_interleaved);
    }
    std::vector<double> output(tokens * part.heads * part.value_dim, 0);
    for (std::size_t t = 0; t < tokens; ++t)
        for (std::size_t h = 0; h < part.heads; ++h) {
            std::vector<double> scores;
            std::vector<std::size_t> seen;
            for (std::size_t s = t / length * length; s < t / length * length + length; ++s) {
                std::size_t const apart = s > t ? s - t : t - s;
                if (documents[s] != documents[t] || (part.sight.causal && s > t) ||
                    (part.sight.window > 0 && apart >= part.sight.window))
                    continue;
                double const* const q = &query[(t * part.heads + h) * n];
                double const* const k = &heads[(s * part.heads + h) * (part.head_dim + part.value_dim)];
                double score = 0;
                for (std::size_t i = 0; i < part.head_dim; ++i) score += q[i] * k[i];
                for (std::size_t i = 0; i < part.rope_dim; ++i)
                    score += q[part.head_dim + i] * rotary[s * part.rope_dim + i];
                scores.push_back(score / std::sqrt(static_cast<double>(n)));
                seen.push_back(s);
            }
            double sum = 0;
            for (double& score : scores) sum += score = std::exp(score);
            for (std::size_t j = 0; j < seen.size(); ++j)
                for (std::size_t i = 0; i < part.value_dim; ++i)
                    output[(t * part.heads + h) * part.value_dim + i] +=
                        scores[j] / sum *
                        heads[(seen[j] * part.heads + h) * (part.head_dim + part.value_dim) + part.head_dim + i];
        }
    return times(output, weight("o_proj"), part.heads * part.value_dim);
}

Arrays drawn_for(model::LatentAttention const& part) {
    Arrays arrays{{"x", drawn({sequences, length, width}, "x")}, {"dy", drawn({sequences, length, width}, "dy")}};
    auto const add = [&](std::string const& name, std::vector<std::size_t> extents, double factor) {
        auto& whole = arrays["self_attn." + name + ".weight"] = drawn(std::move(extents), name);
        for (double& value : whole.values) value *= factor;
    };
    if (part.query_rank == 0) {
        add("q_proj", {part.heads, part.width(), width}, 0.3);
    } else {
        add("q_a_proj", {part.query_rank, width}, 1);
        add("q_a_layernorm", {part.query_rank}, 1);
        add("q_b_proj", {part.heads, part.width(), part.query_rank}, 0.5);
    }
    add("kv_a_proj_with_mqa", {part.kv_rank + part.rope_dim, width}, 0.3);
    add("kv_a_layernorm", {part.kv_rank}, 1);
    add("kv_b_proj", {part.heads, part.head_dim + part.value_dim, part.kv_rank}, 0.5);
    add("o_proj", {width, part.heads, part.value_dim}, 0.5);
    return arrays;
}

constexpr std::array strategies{ContextStrategy::ring, ContextStrategy::double_ring, ContextStrategy::heads_ring,
                                ContextStrategy::ring_heads};

bool fits(MeshShape const& m) { return m.pp == 1 && sequences % (m.dp * m.ep) == 0 && 6 % m.tp == 0; }

/// On one rank it is the reference and the limit of finite differences; on every mesh what it is on one rank.
template <class L = Layer>
void check_latent(model::LatentAttention const& part, bool is_packed = false, model::PieceSet recomputed = {}) {
    Arrays arrays = drawn_for(part);
    std::vector<std::size_t> documents(sequences * length, 0), positions(sequences * length);
    for (std::size_t t = 0; t < positions.size(); ++t) positions[t] = t % length;
    if (is_packed) {
        arrays["tokens"] = {{sequences, length}, std::vector<double>(sequences * length, 1)};
        for (std::size_t const end : {6, 7, 15, 24 + 0, 24 + 12, 24 + 20}) arrays["tokens"].values[end] = 0;
        for (std::size_t t = 1; t < documents.size(); ++t) {
            bool const begins = t % length == 0 || arrays["tokens"].values[t - 1] == 0;
            documents[t] = documents[t - 1] + (begins ? 1 : 0);
            positions[t] = begins ? 0 : positions[t - 1] + 1;
        }
    }
    auto const make = [&](LayerSetup<Exec> const& s) {
        L layer(s, part, "self_attn");
        layer.recompute(recomputed);
        return layer;
    };
    Alone const alone;
    LayerSetup<Exec> const of_one{.context = alone.context, .hidden = width, .batch = sequences, .seq = length};
    {
        PackedTokens<InvariantStream<f64>> const packed(of_one, arrays);
        arrays = on_one_rank(of_one, [&](auto const& s) { return Layer(s, part, "self_attn"); }, arrays, packed.map());
        Whole const expected{arrays.at("y").extents, reference(part, arrays, documents, positions)};
        double apart = 0;
        for (std::size_t i = 0; i < expected.values.size(); ++i)
            apart = std::max(apart, std::abs(expected.values[i] - arrays.at("y").values[i]));
        CHECK(apart <= 1e-12 * expected.scale());
    }
    for (auto const& m : meshes(fits))
        for (auto const order : {Order::contiguous, Order::zigzag})
            for (auto const strategy : strategies) {
                if (m.cp == 1 && (order == Order::zigzag || strategy != ContextStrategy::ring)) continue;
                INFO("dealt as for ", std::string(name(strategy)));
                OnMesh const mesh(m, OnMesh::mesh(m, 0, m.cp % 2 == 0 ? 2 : m.cp));
                LayerSetup<Exec> const setup{.context = mesh.context,
                                             .hidden = width,
                                             .batch = sequences,
                                             .seq = length,
                                             .block = {.context = strategy, .zigzag = order == Order::zigzag}};
                PackedTokens<InvariantStream<f64>> const packed(setup, arrays);
                check_layer(mesh, setup, make, arrays, 1e-11, 0, 0, packed.map());
            }
}

} // namespace

TEST_CASE("latent attention is what the paper says, on any mesh, with compressed queries and without") {
    check_latent(usual);
    auto direct = usual;
    direct.query_rank = 0;
    direct.rotary.is_interleaved = false;
    check_latent(direct);
    CHECK(layout_text<Layer::KeyUp::parameter_type::gradient_layout>.view() ==
          "f64[heads@tp:?, head_dim:?, latent:?]{dp.cp: partial}");
    CHECK(layout_text<Layer::QueryUp::parameter_type::gradient_layout>.view() ==
          "f64[heads@tp:?, head_dim:?, latent:?]{dp.cp: partial}");
    CHECK(layout_text<Layer::Down::parameter_type::gradient_layout>.view() ==
          "f64[latent:?, hidden:?]{dp.cp.tp: partial}");
}
TEST_CASE("latent attention, also with YaRN, is PyTorch's on any mesh") {
    auto const check = [](std::string const& file, model::LatentAttention const& part) {
        Arrays const arrays = golden(file);
        for (auto const& m : meshes(fits))
            for (auto const order : {Order::contiguous, Order::zigzag}) {
                if (m.cp == 1 && order == Order::zigzag) continue;
                OnMesh const mesh(m);
                LayerSetup<Exec> const setup{
                    .context = mesh.context,
                    .hidden = width,
                    .batch = sequences,
                    .seq = length,
                    .block = {.context = ContextStrategy::all_gather, .zigzag = order == Order::zigzag}};
                check_layer(mesh, setup, [&](auto const& s) { return Layer(s, part, "self_attn"); }, arrays);
            }
    };
    model::LatentAttention part{
        .heads = 6, .head_dim = 5, .rope_dim = 8, .value_dim = 3, .query_rank = 7, .kv_rank = 8};
    check("latent_attention", part);
    part.rotary.yarn = {.factor = 4, .original_positions = 64, .fast = 8, .turned_scale = 0.7, .score_scale = 0.9};
    check("latent_attention_yarn", part);
    part.query_rank = 0;
    part.rotary = {.is_interleaved = false};
    check("latent_attention_direct", part);
}
TEST_CASE("under sequence parallelism, and with heads exchanged for sequence, latent attention is the same") {
    check_latent<LayerOn<SequenceStream<f64>>>(usual);
    check_latent<LayerOn<SequenceStream<f64>, ExchangedHeads>>(usual);
}
TEST_CASE("latent attention within a window, to all tokens, and within packed documents") {
    auto windowed = usual, full = usual;
    windowed.sight.window = 5;
    full.sight.causal = false;
    check_latent(windowed);
    check_latent(full);
    check_latent(usual, true);
    check_latent(usual, true, {model::Piece::attention}); // which is computed again
    check_latent<LayerOn<SequenceStream<f64>>>(windowed, true);
}

TEST_CASE("over cp the latent vector and the rotary key travel, and in the backward pass their gradients") {
    int const n = world_size();
    if (n == 1 || length % n != 0) return;
    OnMesh const mesh({.cp = n});
    LayerSetup<Exec> const setup{.context = mesh.context, .hidden = width, .batch = sequences, .seq = length};
    Layer layer(setup, usual, "self_attn");
    Arrays const arrays = drawn_for(usual);
    Parameters<f64> const parameters(layer, [&](std::string const& name) { return arrays.at(name); });
    Pass<Exec> pass{.context = mesh.context};
    Layer::Saved saved;
    Dealing const dealing{Order::contiguous, ContextStrategy::ring};
    auto const x = shard<Layer::input_layout>(mesh, arrays.at("x"), dealing);
    auto const dy = shard<dual_t<Layer::output_layout>>(mesh, arrays.at("dy"), dealing);
    double const once = sequences * length * (8 + 4) * sizeof(f64) * (n - 1.0) / n;
    observe::ledger().clear();
    (void)layer.forward(pass, x, saved);
    CHECK(observe::ledger().bytes("cp") == once);
    observe::ledger().clear();
    (void)layer.backward_data(pass, dy, saved);
    CHECK(observe::ledger().bytes("cp") == 2 * once); // gathered again, and the gradients scattered
    layer.backward_weight(pass, saved);
}

TEST_CASE("latent attention is of DeepSeek's parameters, and refuses widths of 0 and odd rotary ones") {
    Alone const mesh;
    LayerSetup<Exec> const setup{.context = mesh.context, .hidden = width, .batch = sequences, .seq = length};
    auto const names = [&](model::LatentAttention const& part) {
        std::vector<std::string> list;
        Layer layer(setup, part, "a");
        layer.for_each_parameter([&](auto const& parameter) { list.push_back(parameter.name()); });
        return list;
    };
    auto direct = usual;
    direct.query_rank = 0;
    CHECK(names(direct) == std::vector<std::string>{"a.q_proj.weight", "a.kv_a_proj_with_mqa.weight",
                                                    "a.kv_a_layernorm.weight", "a.kv_b_proj.weight",
                                                    "a.o_proj.weight"});
    CHECK(names(usual) == std::vector<std::string>{"a.q_a_proj.weight", "a.kv_a_proj_with_mqa.weight",
                                                   "a.q_a_layernorm.weight", "a.q_b_proj.weight",
                                                   "a.kv_a_layernorm.weight", "a.kv_b_proj.weight", "a.o_proj.weight"});
    auto odd = usual, none = usual;
    odd.rope_dim = 3;
    none.value_dim = 0;
    CHECK_THROWS_WITH(Layer(setup, odd, "a"), "a: 3 elements of queries and keys cannot be turned in pairs: give an "
                                              "even number, at least 2");
    CHECK_THROWS_WITH(Layer(setup, none, "a"), "a: latent attention needs heads, widths of keys and values, and a rank "
                                               "of keys and values, of at least 1");
}
