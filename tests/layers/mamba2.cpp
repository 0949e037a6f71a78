// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/recurrence.hpp>
#include <pentad/layers/mamba2.hpp>

#include <support/layer_check.hpp>
#include <support/packed.hpp>

#include <stdexcept>
#include <string>
#include <vector>

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
                    fit(norm_groups, m.tp) && (!shards_sequence || m.tp > 1) && 24 / m.cp >= 3;
         }))
        for (auto const strategy : {ContextStrategy::ring, ContextStrategy::all_gather}) {
            if (m.cp == 1 && strategy != ContextStrategy::ring) continue;
            OnMesh const mesh(m);
            LayerSetup<Exec> const setup{
                .context = mesh.context, .hidden = 24, .batch = 2, .seq = 24, .context_strategy = strategy};
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

TEST_CASE("Mamba-2 is its recurrence on any mesh, with its states passed or gathered over cp") {
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
TEST_CASE("sequences that are dealt over cp by the work of attention are refused") {
    OnMesh const mesh({.cp = world_size()});
    LayerSetup<Exec> const setup{.context = mesh.context, .hidden = 24, .batch = 2, .seq = 24};
    train::PackedMap<InvariantStream<f64>, Exec> map(setup);
    map.set({.last = 0, .deals_by_work = true}, std::vector<i32>(2 * 25, 1));
    using L = Layer<InvariantStream<f64>>;
    Arrays const arrays = golden("mamba2");
    Trial<L> trial{.mesh = mesh,
                   .order = Order::contiguous,
                   .layer = {setup, {.heads = 6, .head_dim = 4, .state = 6}, "mixer"},
                   .arrays = arrays,
                   .pass = {.context = mesh.context, .map = &map.of_slice(0)}};
    auto const x = shard<L::input_layout>(mesh, arrays.at("x"), Order::contiguous);
    if (world_size() > 1)
        CHECK_THROWS_AS((void)trial.forward(x), std::invalid_argument);
    else
        CHECK_NOTHROW((void)trial.forward(x));
}
TEST_CASE("the gradients of what a rank uses alone are summed over the ranks that share out tokens") {
    using L = Layer<InvariantStream<f64>>;
    CHECK(layout_text<used_t<L::OfHeads, L::Steps>>.view() == "f64[heads@tp:?]{dp.ep.cp: replicated}");
    CHECK(layout_text<L::Norm::PartialSums>.view() == "f64[batch@dp.ep:?, seq@cp:?, group:?]{tp: partial}");
}
