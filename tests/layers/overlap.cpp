// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/selected.hpp>
#include <pentad/layers/attention.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layout/ml.hpp>

#include <support/layer_check.hpp>

using namespace support;

namespace {

constexpr std::size_t sequences = 4, length = 24;

/// Layers whose shards travel in pieces, whatever their size, and the same that wait for the whole.
template <template <class> class Layer, class Stream, class Communication>
auto make(LayerSetup<Exec> const& setup) {
    using On = typename Layer<Communication>::template on<Stream, Exec>;
    if constexpr (std::is_same_v<Layer<Communication>, PlainMlp<Communication>>)
        return On(setup, model::PlainMlp{12}, "l");
    else if constexpr (std::is_same_v<Layer<Communication>, GatedMlp<Communication>>)
        return On(setup, model::GatedMlp{12}, "l");
    else
        return On(setup, model::Attention{.heads = 4, .kv_heads = 4, .head_dim = 2}, "l");
}
template <class Communication>
using SelectedAttention = Attention<context::Selected, Communication>;

Arrays inputs() {
    Arrays arrays{{"x", drawn({sequences, length, 8}, "x")}, {"dy", drawn({sequences, length, 8}, "dy")}};
    for (std::string const name : {"gate", "up"}) arrays["l." + name + "_proj.weight"] = drawn({12, 8}, name);
    arrays["l.down_proj.weight"] = drawn({8, 12}, "down");
    for (std::string const name : {"q", "k", "v"}) arrays["l." + name + "_proj.weight"] = drawn({4, 2, 8}, name);
    arrays["l.o_proj.weight"] = drawn({8, 4, 2}, "o");
    return arrays;
}

/// The layer on every mesh of nodes of one rank, against the layer on one rank.
template <template <class> class Layer, class Communication, class Stream>
void check(Arrays const& arrays) {
    auto const fits = [](MeshShape const& m) {
        return m.pp == 1 && 4 % (m.dp * m.ep) == 0 && 12 % m.tp == 0 && 4 % m.tp == 0 && length % (m.cp * m.tp) == 0;
    };
    for (auto const& m : meshes(fits)) {
        SimulatedNodes const nodes("1");
        OnMesh const mesh(m);
        LayerSetup<Exec> const setup{.context = mesh.context, .hidden = 8, .batch = sequences, .seq = length};
        auto const expected = on_one_rank(setup, make<Layer, InvariantStream<f64>, Blocking>, arrays);
        check_layer(mesh, setup, make<Layer, Stream, Communication>, expected);
    }
}

template <template <class> class Layer>
void check_all() {
    Arrays const arrays = inputs();
    check<Layer, Overlap<1, 1>, SequenceStream<f64>>(arrays);
    check<Layer, Overlap<2, 1>, SequenceStream<f64>>(arrays);  // pieces of some sequences each
    check<Layer, Overlap<5, 1>, SequenceStream<f64>>(arrays);  // pieces of some positions of all sequences, unequal
    check<Layer, Overlap<2, 1>, InvariantStream<f64>>(arrays); // nothing to take apart
}

} // namespace

TEST_CASE("SwiGLU whose collectives are taken apart is SwiGLU") { check_all<GatedMlp>(); }
TEST_CASE("GELU whose collectives are taken apart is GELU") { check_all<PlainMlp>(); }
TEST_CASE("attention whose collectives are taken apart is attention") { check_all<SelectedAttention>(); }

TEST_CASE("pieces leave and arrive one by one: what is gathered is used, and what is scattered made, once each") {
    SimulatedNodes const nodes("1");
    int const n = world_size();
    OnMesh const mesh({.tp = n});
    using Shard = Layout<f64, Dims<Dim<batch>, Dim<seq, dynamic, tp>, Dim<hidden>>>;
    using Whole = Layout<f64, Dims<Dim<batch>, Dim<seq>, Dim<hidden>>, Replicated<tp>>;
    std::array<std::size_t, 3> const extents{2, 6 * static_cast<std::size_t>(n), 3};
    std::size_t calls = 0;
    std::vector<int> seen(2 * extents[1], 0);
    auto const count = [&](RowRange rows) {
        ++calls;
        for (std::size_t i = rows.begin; i < rows.end; ++i) ++seen[i];
    };
    Tensor<Shard, Exec> const shard(mesh.context, extents);
    std::vector<double> numbers(shard.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(100 * world_rank()) + i;
    shard.set(numbers.data());

    bool all_here = true; // when a row is used its numbers are those that were sent
    auto const whole = redistribute_and_consume<Whole, Overlap<3, 1>, 1>(shard, [&](auto const& x, RowRange rows) {
        count(rows);
        for (std::size_t i = rows.begin; i < rows.end; ++i) {
            std::size_t const row = i / extents[1], column = i % extents[1];
            all_here = all_here && x.view()(row, column, 1) ==
                                       static_cast<double>(100 * (column / 6) + (row * 6 + column % 6) * 3 + 1);
        }
    });
    CHECK(all_here);
    CHECK(std::count(seen.begin(), seen.end(), 1) == static_cast<std::ptrdiff_t>(seen.size()));
    if (n > 1)
        CHECK(calls == 2 + 2 * 3 * (static_cast<std::size_t>(n) - 1)); // of two sequences: own, and 3 pieces each

    calls = 0;
    seen.assign(seen.size(), 0);
    auto const sum = produce_and_redistribute<dual_t<Whole>, dual_t<Shard>, Overlap<3, 1>, 1>(
        mesh.context, extents, [&](auto const& x, RowRange rows) {
            count(rows);
            for (std::size_t i = rows.begin * 3; i < rows.end * 3; ++i)
                x.array_data()[i] = static_cast<double>((world_rank() + 1) * i);
        });
    std::vector<double> sums(sum.size());
    sum.get(sums.data());
    double wrong = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
        std::size_t const row = i / 18, at = (row * extents[1] + 6 * world_rank()) * 3 + i % 18;
        wrong = std::max(wrong, std::abs(sums[i] - static_cast<double>(at) * n * (n + 1) / 2));
    }
    CHECK(wrong == 0);
    CHECK(std::count(seen.begin(), seen.end(), 1) == static_cast<std::ptrdiff_t>(seen.size()));
}
