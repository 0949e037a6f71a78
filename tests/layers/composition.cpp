// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layers/composition.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/rms_norm.hpp>

#include <support/layer_check.hpp>

using namespace support;

namespace {

/// Everything at once: a norm and a feed-forward block one after the other, then a residual around one of two.
using Block =
    Sequence<Residual<RmsNorm, SwiGlu<>>, Sequence<RmsNorm, Gelu<>>, Residual<RmsNorm, Either<SwiGlu<>, Gelu<>>>>;

template <class Stream>
auto make_blocks(bool recompute, std::size_t count) {
    return [recompute, count](Setup<Exec> const& s) {
        using BlockLayer = Block::on<Stream, Exec>;
        using First = typename BlockLayer::template layer<0>;
        using Second = typename BlockLayer::template layer<1>;
        using Third = typename BlockLayer::template layer<2>;
        using Choice = typename Third::BodyLayer;
        std::vector<typename Recompute<Block>::template on<Stream, Exec>> blocks;
        for (std::size_t i = 0; i < count; ++i) {
            std::string const name = "block" + std::to_string(i);
            auto choice = i % 2 == 0 ? Choice(typename Choice::SecondLayer(s, name + ".gelu"))
                                     : Choice(typename Choice::FirstLayer(s, name + ".swiglu"));
            blocks.emplace_back(recompute,
                                BlockLayer(First(typename First::NormLayer(s, name + ".norm0"),
                                                 typename First::BodyLayer(s, name + ".first")),
                                           Second(typename Second::template layer<0>(s, name + ".norm1"),
                                                  typename Second::template layer<1>(s, name + ".second")),
                                           Third(typename Third::NormLayer(s, name + ".norm2"), std::move(choice))));
        }
        return typename Repeat<Recompute<Block>>::template on<Stream, Exec>(std::move(blocks));
    };
}

template <class Stream>
void check_blocks(std::vector<MeshShape> const& on) {
    Arrays arrays;
    for (auto const& m : on)
        for (bool const recompute : {false, true}) {
            INFO("recompute: ", recompute);
            OnMesh const mesh(m);
            Setup<Exec> const setup{.context = mesh.context,
                                    .shape = {.hidden = 8, .ffn = 12},
                                    .batch = 4,
                                    .seq = 12,
                                    .order = 6 % m.cp == 0 ? Order::zigzag : Order::contiguous};
            if (arrays.empty()) {
                arrays = {{"x", drawn({4, 12, 8}, "x")}, {"dy", drawn({4, 12, 8}, "dy")}};
                auto layer = make_blocks<Stream>(false, 2)(setup);
                layer.for_each_parameter([&](auto const& p) {
                    arrays[p.name()] = drawn({p.value().extents().begin(), p.value().extents().end()}, p.name());
                    for (auto& value : arrays[p.name()].values)
                        value = 0.3 * value + (p.decays ? 0 : 1); // norms: about 1
                });
                arrays = on_one_rank(setup, make_blocks<Stream>(false, 2), arrays);
            }
            check_layer(mesh, setup, make_blocks<Stream>(recompute, 2), arrays, 1e-11);
        }
}

bool fits(MeshShape const& m) { return m.pp == 1 && 4 % (m.dp * m.ep) == 0 && 12 % m.tp == 0; }

} // namespace

TEST_CASE("residuals, sequences, choices and repetition on a stream that is invariant over tp") {
    check_blocks<InvariantStream<f64>>(meshes(fits));
}
TEST_CASE("the same layers on a stream that tp shards give the same: the redistributions follow from the stream") {
    check_blocks<SequenceStream<f64>>(meshes([](MeshShape const& m) { return fits(m) && 12 % (m.cp * m.tp) == 0; }));
}

TEST_CASE("recomputation gives the same bits") {
    using Stream = SequenceStream<f64>;
    for (auto const& m : meshes([](MeshShape const& m) { return fits(m) && m.cp == 1 && m.dp * m.ep == 1; })) {
        OnMesh const mesh(m);
        Setup<Exec> const setup{.context = mesh.context, .shape = {.hidden = 8, .ffn = 12}, .batch = 4, .seq = 12};
        std::vector<Arrays> runs;
        for (bool const recompute : {false, true}) {
            auto layer = make_blocks<Stream>(recompute, 2)(setup);
            Parameters<f64> const parameters(layer, [](std::string const& name) {
                return drawn({name.find("norm") == std::string::npos ? std::size_t{96} : std::size_t{8}}, name);
            });
            typename decltype(layer)::Saved saved;
            Pass<Exec> pass{.context = mesh.context};
            auto& run = runs.emplace_back();
            run["y"] = gather(layer.forward(pass, shard<Stream>(mesh, drawn({4, 12, 8}, "x"), setup.order), saved),
                              setup.order);
            run["dx"] = gather(layer.backward(pass, shard<Stream>(mesh, drawn({4, 12, 8}, "dy"), setup.order), saved),
                               setup.order);
            layer.for_each_parameter(
                [&](auto const& p) { run[p.name()] = gather(reduced_gradient(p), Order::contiguous); });
            CHECK(pass.is_replay == false);
        }
        for (auto const& [name, whole] : runs[0]) CHECK_MESSAGE(whole.values == runs[1].at(name).values, name);
    }
}

TEST_CASE("a layer repeated no times changes nothing") {
    OnMesh const mesh({.tp = world_size()});
    Setup<Exec> const setup{.context = mesh.context, .shape = {.hidden = 8, .ffn = 12}, .batch = 4, .seq = 12};
    auto none = make_blocks<SequenceStream<f64>>(true, 0)(setup);
    decltype(none)::Saved saved;
    Pass<Exec> pass{.context = mesh.context};
    Whole const x = drawn({4, 12, 8}, "x");
    auto const y = none.forward(pass, shard<SequenceStream<f64>>(mesh, x, setup.order), saved);
    CHECK(distance(y, x, setup.order) == 0);
    CHECK(distance(none.backward(pass, y, saved), x, setup.order) == 0);
}
