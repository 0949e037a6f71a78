// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/rms_norm.hpp>
#include <pentad/layers/sequential.hpp>
#include <pentad/layers/stack.hpp>

#include <support/layer_check.hpp>

using namespace support;

namespace {

/// A part of a user's own: a norm and an MLP one after the other.
struct NormedMlp {
    static constexpr std::string_view kind = "normed MLP";
    std::size_t width;
    friend bool operator==(NormedMlp const&, NormedMlp const&) = default;
    [[nodiscard]] std::string text() const { return "width " + std::to_string(width); }
};
struct NormedMlpLayer {
    template <class Stream, class Exec>
    struct on : Sequential<RmsNorm, PlainMlp<>>::on<Stream, Exec> {
        using Layers = Sequential<RmsNorm, PlainMlp<>>::on<Stream, Exec>;
        on(LayerSetup<Exec> const& setup, NormedMlp const& part, std::string const& name)
            : Layers(typename Layers::template layer<0>(setup, name + ".norm"),
                     typename Layers::template layer<1>(setup, {part.width}, name)) {}
    };
};

/// Blocks that differ: three branches each, of which the last is gated in every second one.
model::Model described(std::size_t count) {
    model::Model model{.hidden = 8};
    for (std::size_t i = 0; i < count; ++i) {
        model::Part const last = i % 2 == 0 ? model::Part(model::PlainMlp{12}) : model::Part(model::GatedMlp{12});
        model.blocks.push_back({{{model::GatedMlp{12}, "first", "norm0"},
                                 {NormedMlp{12}, "second", "norm1"},
                                 {last, i % 2 == 0 ? "gelu" : "swiglu", "norm2"}}});
    }
    return model;
}

using Kind = model::Recomputation::Kind;
model::Recomputation pieces(model::PieceSet set, std::size_t every = 1) {
    return {.kind = Kind::selective, .every = every, .pieces = set};
}
/// Nothing, everything, every second block, pieces alone and together, and blocks that differ.
std::vector<model::Recomputation> recomputations() {
    using model::Piece;
    return {{},
            {.kind = Kind::full},
            {.kind = Kind::full, .every = 2},
            pieces({Piece::inputs}),
            pieces({Piece::norms}),
            pieces({Piece::activations}),
            pieces({Piece::norms, Piece::activations}, 2),
            {.kind = Kind::planned, .blocks = {{.pieces = {Piece::inputs, Piece::activations}}, {.whole = true}}}};
}

/// A stack as a layer whose streams are types.
template <class Stream>
struct TypedStack {
    using input_layout = Stream;
    using output_layout = Stream;
    using Saved = Stack<f64, Exec>::Saved;
    using Gradient = Tensor<dual_t<Stream>, Exec>;
    Stack<f64, Exec> stack;

    Tensor<Stream, Exec> forward(Pass<Exec>& pass, Tensor<Stream, Exec> x, Saved& saved) const {
        return stack.forward(pass, std::move(x), saved).template as<Stream>();
    }
    Gradient backward(Pass<Exec>& pass, Gradient dy, Saved& saved) const {
        return stack.backward(pass, std::move(dy), saved).template as<dual_t<Stream>>();
    }
    Gradient backward_data(Pass<Exec>& pass, Gradient dy, Saved& saved) const {
        return stack.backward_data(pass, std::move(dy), saved).template as<dual_t<Stream>>();
    }
    void backward_weight(Pass<Exec>& pass, Saved& saved) const { stack.backward_weight(pass, saved); }
    template <class F>
    void for_each_parameter(F&& f) {
        stack.for_each_parameter(f);
    }
};

template <class Stream>
auto make_blocks(model::Recomputation const& recompute, std::size_t count) {
    return [recompute, count](LayerSetup<Exec> const& setup) {
        LayerRegistry<f64, Exec> registry;
        registry.template add<model::GatedMlp, GatedMlp<>, Stream>()
            .template add<model::PlainMlp, PlainMlp<>, Stream>()
            .template add<NormedMlp, NormedMlpLayer, Stream>();
        return TypedStack<Stream>{
            Stack<f64, Exec>({setup, Stream::value}, described(count), registry, 0, count, recompute)};
    };
}

template <class Stream>
void check_blocks(std::vector<MeshShape> const& on) {
    Arrays arrays;
    for (auto const& m : on)
        for (auto const& recompute : recomputations()) {
            INFO("recomputes ", model::name(recompute.kind), " ", model::text(recompute.pieces));
            OnMesh const mesh(m);
            LayerSetup<Exec> const setup{
                .context = mesh.context, .hidden = 8, .batch = 4, .seq = 12, .block = {.zigzag = 6 % m.cp == 0}};
            if (arrays.empty()) {
                arrays = {{"x", drawn({4, 12, 8}, "x")}, {"dy", drawn({4, 12, 8}, "dy")}};
                auto layer = make_blocks<Stream>({}, 2)(setup);
                layer.for_each_parameter([&](auto const& p) {
                    auto const& extents = p.global_extents();
                    arrays[p.name()] = drawn({extents.begin(), extents.begin() + p.stored_layout().rank}, p.name());
                    for (auto& value : arrays[p.name()].values)
                        value = 0.3 * value + (p.decays() ? 0 : 1); // norms: about 1
                });
                arrays = on_one_rank(setup, make_blocks<Stream>({}, 2), arrays);
            }
            check_layer(mesh, setup, make_blocks<Stream>(recompute, 2), arrays, 1e-11);
        }
}

bool fits(MeshShape const& m) { return m.pp == 1 && 4 % (m.dp * m.ep) == 0 && 12 % m.tp == 0; }

} // namespace

TEST_CASE("blocks that differ, a part of the user's own among them, on a stream that is invariant over tp") {
    check_blocks<InvariantStream<f64>>(meshes(fits));
}
TEST_CASE("the same layers on a stream that tp shards give the same: the redistributions follow from the stream") {
    check_blocks<SequenceStream<f64>>(meshes([](MeshShape const& m) { return fits(m) && 12 % (m.cp * m.tp) == 0; }));
}

TEST_CASE("recomputation gives the same bits") {
    using Stream = SequenceStream<f64>;
    for (auto const& m : meshes([](MeshShape const& m) { return fits(m) && m.cp == 1 && m.dp * m.ep == 1; })) {
        OnMesh const mesh(m);
        LayerSetup<Exec> const setup{.context = mesh.context, .hidden = 8, .batch = 4, .seq = 12};
        std::vector<Arrays> runs;
        for (auto const& recompute : recomputations()) {
            auto layer = make_blocks<Stream>(recompute, 2)(setup);
            Parameters<f64> const parameters(layer, [](std::string const& name) {
                return drawn({name.find("norm") == std::string::npos ? std::size_t{96} : std::size_t{8}}, name);
            });
            typename decltype(layer)::Saved saved;
            Pass<Exec> pass{.context = mesh.context};
            auto& run = runs.emplace_back();
            run["y"] =
                gather(layer.forward(pass, shard<Stream>(mesh, drawn({4, 12, 8}, "x"), setup.block.order()), saved),
                       setup.block.order());
            run["dx"] =
                gather(layer.backward(pass, shard<Stream>(mesh, drawn({4, 12, 8}, "dy"), setup.block.order()), saved),
                       setup.block.order());
            layer.for_each_parameter([&](auto const& p) { run[p.name()] = reduced_gradient(p); });
            CHECK(pass.is_replay == false);
        }
        for (std::size_t i = 1; i < runs.size(); ++i)
            for (auto const& [name, whole] : runs[0]) CHECK_MESSAGE(whole.values == runs[i].at(name).values, name);
    }
}

TEST_CASE("no blocks change nothing") {
    OnMesh const mesh({.tp = world_size()});
    LayerSetup<Exec> const setup{.context = mesh.context, .hidden = 8, .batch = 4, .seq = 12};
    auto none = make_blocks<SequenceStream<f64>>({.kind = Kind::full}, 0)(setup);
    decltype(none)::Saved saved;
    Pass<Exec> pass{.context = mesh.context};
    Whole const x = drawn({4, 12, 8}, "x");
    auto const y = none.forward(pass, shard<SequenceStream<f64>>(mesh, x, setup.block.order()), saved);
    CHECK(distance(y, x, setup.block.order()) == 0);
    CHECK(distance(none.backward(pass, y, saved), x, setup.block.order()) == 0);
}

TEST_CASE("a part that the registry has no layer for is refused by name") {
    OnMesh const mesh({.tp = world_size()});
    LayerSetup<Exec> const setup{.context = mesh.context, .hidden = 8, .batch = 4, .seq = 12};
    auto const make = [&] {
        return Stack<f64, Exec>({setup, SequenceStream<f64>::value}, described(1), LayerRegistry<f64, Exec>(), 0, 1,
                                {});
    };
    CHECK_THROWS_WITH_AS(make(),
                         "there is no layer for the part 'gated MLP' of model.layers.0.first "
                         "on the stream f64[batch@dp:?, seq@cp.tp:?, hidden:?]: add one to the registry",
                         std::invalid_argument);
}

TEST_CASE("a maker that gives a layer of another stream is refused when the layer is made") {
    OnMesh const mesh({.tp = world_size()});
    LayerSetup<Exec> const setup{.context = mesh.context, .hidden = 8, .batch = 4, .seq = 12};
    using Registry = LayerRegistry<f64, Exec>;
    Registry registry;
    registry.add<model::GatedMlp, SequenceStream<f64>>(
        &Registry::make_layer<GatedMlp<>, model::GatedMlp, InvariantStream<f64>>);
    CHECK_THROWS_WITH_AS((void)registry.make(setup, SequenceStream<f64>::value, model::GatedMlp{12}, "mlp"),
                         "the layer of mlp is on the stream f64[batch@dp:?, seq@cp:?, hidden:?], and was asked for on "
                         "f64[batch@dp:?, seq@cp.tp:?, hidden:?]",
                         std::logic_error);
}

TEST_CASE("each piece keeps less between the passes, and what is recomputed is freed after the backward pass") {
    using Stream = SequenceStream<f64>;
    int const tp = world_size();
    if (12 % tp != 0) return;
    OnMesh const mesh({.tp = tp});
    LayerSetup<Exec> const setup{.context = mesh.context, .hidden = 8, .batch = 4, .seq = 12};
    auto const& held = observe::counters()[observe::Memory::activations];
    /// Bytes that a forward pass of a block of a gated MLP leaves.
    auto const saved_with = [&](model::Recomputation const& recompute) {
        LayerRegistry<f64, Exec> registry;
        registry.template add<model::GatedMlp, GatedMlp<>, Stream>();
        model::Model const model{.hidden = 8, .blocks = {{{{model::GatedMlp{12}, "mlp", "norm"}}}}};
        TypedStack<Stream> layer{Stack<f64, Exec>({setup, Stream::value}, model, registry, 0, 1, recompute)};
        Parameters<f64> const parameters(layer, [](std::string const& name) {
            return drawn({name.find("norm") == std::string::npos ? std::size_t{96} : std::size_t{8}}, name);
        });
        typename decltype(layer)::Saved saved;
        Pass<Exec> pass{.context = mesh.context};
        auto const before = held.bytes;
        auto const y = layer.forward(pass, shard<Stream>(mesh, drawn({4, 12, 8}, "x"), setup.block.order()), saved);
        auto const left = held.bytes - before;
        (void)layer.backward(pass, y.template reinterpret_as<dual_t<Stream>>(), saved);
        return left;
    };
    using model::Piece;
    auto const rounded = [](std::size_t elements) {
        return static_cast<std::int64_t>((elements * sizeof(f64) + 255) / 256 * 256);
    };
    std::size_t const shard_size = 4 * 12 * 8 / static_cast<std::size_t>(tp), whole = 4 * 12 * 8,
                      inner = 4 * 12 * 12 / static_cast<std::size_t>(tp);
    auto const all = saved_with({});
    CHECK(all - saved_with(pieces({Piece::activations})) == rounded(inner));
    CHECK(all - saved_with(pieces({Piece::norms})) == rounded(whole));
    CHECK(all - saved_with(pieces({Piece::inputs})) == (tp == 1 ? 0 : rounded(whole) - rounded(shard_size)));
    CHECK(saved_with({.kind = Kind::full}) == 2 * rounded(shard_size)); // the input and the output
}
