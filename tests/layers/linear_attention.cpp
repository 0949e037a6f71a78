// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/recurrence.hpp>
#include <pentad/layers/linear_attention.hpp>

#include <support/layer_check.hpp>

#include <string>
#include <utility>

using namespace support;

namespace {

template <class Stream>
void check_linear_attention(std::string const& file, model::Fading fading, bool shards_sequence) {
    using Layer = typename LinearAttention<context::Recurrence>::on<Stream, Exec>;
    Arrays const arrays = golden(file);
    for (auto const& m : meshes([&](MeshShape const& m) {
             return m.pp == 1 && 2 % (m.dp * m.ep) == 0 && 6 % m.tp == 0 && (!shards_sequence || m.tp > 1);
         }))
        for (auto const& [strategy, order] : {std::pair{ContextStrategy::ring, Order::contiguous},
                                              {ContextStrategy::all_gather, Order::contiguous},
                                              {ContextStrategy::ring, Order::zigzag}}) {
            if (m.cp == 1 && (strategy != ContextStrategy::ring || order == Order::zigzag)) continue;
            OnMesh const mesh(m);
            LayerSetup<Exec> const setup{.context = mesh.context,
                                         .hidden = 24,
                                         .batch = 2,
                                         .seq = 24,
                                         .block = {.context = strategy, .zigzag = order == Order::zigzag}};
            for (std::size_t const chunk : {5, 24})
                check_layer(
                    mesh, setup,
                    [&](LayerSetup<Exec> const& s) {
                        return Layer(s, {.heads = 6, .head_dim = 4, .fading = fading, .scale = 0.6, .chunk = chunk},
                                     "self_attn");
                    },
                    arrays);
        }
}

} // namespace

TEST_CASE("linear attention is its quadratic form on any mesh, whether and however its state fades") {
    check_linear_attention<InvariantStream<f64>>("linear_attention_none", model::Fading::none, false);
    check_linear_attention<InvariantStream<f64>>("linear_attention_slopes", model::Fading::slopes, false);
    check_linear_attention<InvariantStream<f64>>("linear_attention_retention", model::Fading::retention, false);
    check_linear_attention<SequenceStream<f64>>("linear_attention_slopes", model::Fading::slopes, true);
}
