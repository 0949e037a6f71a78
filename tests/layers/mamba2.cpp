// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/recurrence.hpp>
#include <pentad/layers/mamba2.hpp>

#include <support/layer_check.hpp>
#include <support/packed.hpp>

#include <string>
#include <utility>

using namespace support;

namespace {

template <class Stream>
using Layer = typename Mamba2<context::Recurrence>::on<Stream, Exec>;

template <class Stream>
void check_mamba(std::string const& file, model::Mamba2 part, bool shards_sequence) {
    Arrays const arrays = golden(file);
    auto const groups = static_cast<int>(part.groups), norm_groups = static_cast<int>(part.norm_groups);
    auto const fit = [](int a, int b) { return a % b == 0 || b % a == 0; };
    for (auto const& m : meshes([&](MeshShape const& m) {
             return m.pp == 1 && 2 % (m.dp * m.ep) == 0 && 6 % m.tp == 0 && fit(groups, m.tp) &&
                    fit(norm_groups, m.tp) && (!shards_sequence || m.tp > 1);
         }))
        for (auto const& [strategy, order] : {std::pair{ContextStrategy::ring, Order::contiguous},
                                              {ContextStrategy::all_gather, Order::contiguous},
                                              {ContextStrategy::ring, Order::zigzag},
                                              {ContextStrategy::heads_ring, Order::zigzag},
                                              {ContextStrategy::ring_heads, Order::contiguous}}) {
            if (m.cp == 1 && (strategy != ContextStrategy::ring || order == Order::zigzag)) continue;
            int const inner_cp =
                strategy == ContextStrategy::heads_ring || strategy == ContextStrategy::ring_heads ? 2 : 1;
            if (m.cp % inner_cp != 0) continue;
            OnMesh const mesh(m, OnMesh::mesh(m, 0, inner_cp));
            LayerSetup<Exec> const setup{.context = mesh.context,
                                         .hidden = 24,
                                         .batch = 2,
                                         .seq = 24,
                                         .block = {.context = strategy, .zigzag = order == Order::zigzag}};
            PackedTokens<Stream> const packed(setup, arrays);
            for (std::size_t const chunk : {5, 24}) {
                part.chunk = chunk;
                check_layer(
                    mesh, setup, [&](LayerSetup<Exec> const& s) { return Layer<Stream>(s, part, "mixer"); }, arrays,
                    1e-12, 0, 0, packed.map());
            }
        }
}

} // namespace

TEST_CASE("Mamba-2 is its recurrence on any mesh, however its sequence is dealt to cp") {
    check_mamba<InvariantStream<f64>>("mamba2", {.heads = 6, .head_dim = 4, .state = 6}, false);
    check_mamba<SequenceStream<f64>>("mamba2", {.heads = 6, .head_dim = 4, .state = 6}, true);
}
TEST_CASE("groups of heads, fewer or more than the ranks of tp, and a norm over each of them") {
    check_mamba<InvariantStream<f64>>("mamba2_groups",
                                      {.heads = 6, .head_dim = 4, .state = 6, .groups = 3, .norm_groups = 3}, false);
}
TEST_CASE("limits of the steps of time") {
    check_mamba<InvariantStream<f64>>(
        "mamba2_limits",
        {.heads = 6, .head_dim = 4, .state = 6, .groups = 2, .norm_groups = 6, .least_step = 0.3, .most_step = 0.9},
        false);
}
TEST_CASE("in packed documents Mamba-2 is its recurrence in each, on any mesh") {
    model::Mamba2 const part{.heads = 6, .head_dim = 4, .state = 6, .groups = 2};
    check_mamba<InvariantStream<f64>>("mamba2_packed", part, false);
    check_mamba<SequenceStream<f64>>("mamba2_packed", part, true);
}
TEST_CASE("the gradients of what a rank uses alone are summed over the ranks that share out tokens") {
    using L = Layer<InvariantStream<f64>>;
    CHECK(layout_text<used_t<L::OfHeads, L::Steps>>.view() == "f64[heads@tp:?]{dp.cp: replicated}");
    CHECK(layout_text<L::Norm::PartialSums>.view() == "f64[batch@dp:?, seq@cp:?, group:?]{tp: partial}");
}
