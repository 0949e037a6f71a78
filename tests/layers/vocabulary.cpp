// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layers/vocabulary.hpp>
#include <pentad/layout/ml.hpp>

#include <support/layer_check.hpp>

#include <optional>

using namespace support;

namespace {

using Stream = InvariantStream<f64>;
using Table = VocabTable<Stream, Exec>;
using Head = VocabHead<>::on<Stream, Exec>;
using Embedding = VocabEmbedding::on<Stream, Exec>;
using Tokens = Layout<i32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>>>;

bool fits(MeshShape const& m) { return m.pp == 1 && 4 % (m.dp * m.ep) == 0; }

LayerSetup<Exec> setup_on(OnMesh const& mesh) {
    return {.context = mesh.context, .hidden = 8, .batch = 4, .seq = 12, .block = {.zigzag = 6 % mesh.shape.cp == 0}};
}

/// A value that is partial over the axes that share out the tokens, as all ranks together have it. Collective.
double total(OnMesh const& mesh, double mine) {
    using Sum = Layout<f64, Dims<>, Partial<dp, cp>>;
    Tensor<Sum, Exec> const sum(mesh.context, {});
    Kokkos::deep_copy(sum.array(), mine);
    return on_host(redistribute<invariant_t<Sum>>(sum))(0);
}

/// The loss of the states x under the table `head` and the targets, and its gradients.
Arrays run_head(OnMesh const& mesh, Arrays const& in, double loss_scale) {
    auto const setup = setup_on(mesh);
    Table table(setup, in.at("head").extents[0], "head", false);
    Parameters<f64> const parameters(table, [&](std::string const&) { return in.at("head"); });
    auto const targets = shard<Tokens>(mesh, in.at("targets"), setup.block.order());
    auto const x = shard<Head::input_layout>(mesh, in.at("x"), setup.block.order());
    Head const head(setup, table);
    Head::Saved saved;
    Pass<Exec> pass{.context = mesh.context, .targets = targets.view(), .loss_scale = loss_scale};
    head.forward(pass, x, saved);
    auto const dx = head.backward_data(pass, saved);
    head.backward_weight(pass, saved);
    Arrays out{{"loss_sum", {{}, {total(mesh, pass.loss_sum)}}}, {"dx", gather(dx, setup.block.order())}};
    table.for_each_parameter([&](auto const& parameter) {
        auto const gradient = reduced_gradient(parameter);
        CHECK_MESSAGE(distance_with_padding(gradient, in.contains("dhead") ? in.at("dhead") : gradient) < 1e-12,
                      "dhead, whose padding is zero");
        out["dhead"] = gradient;
        out["dhead"].values.resize(in.at("head").values.size()); // without the padding
        if (loss_scale == 0) return;
        auto const loss = [&] {
            Pass<Exec> again{.context = mesh.context, .targets = targets.view()};
            head.forward(again, x, saved);
            return loss_scale * total(mesh, again.loss_sum);
        };
        check_differences(
            "x", gather(x, setup.block.order()), gather(dx, setup.block.order()),
            [&](Whole const& at) { fill(x, at, setup.block.order()); }, loss);
        saved = {};
    });
    return out;
}

} // namespace

TEST_CASE("the embedding is PyTorch's on any mesh, with a vocabulary of 37 that tp does not divide, and with padding") {
    Arrays const expected = golden("vocabulary");
    auto const padding = static_cast<std::size_t>(expected.at("padding").values[0]);
    int number = 0;
    for (auto const& m : meshes(fits)) {
        INFO(m.text());
        OnMesh const mesh(m);
        auto const setup = setup_on(mesh);
        Table table(setup, 37, "table", false);
        Parameters<f64> const parameters(table, [&](std::string const&) { return expected.at("table"); });
        auto const tokens = shard<Tokens>(mesh, expected.at("tokens"), setup.block.order());
        bool const pads = ++number % 2 == 0;
        Embedding const embedding(setup, table, pads ? std::optional(padding) : std::nullopt);
        Embedding::Saved saved;
        Pass<Exec> pass{.context = mesh.context, .tokens = tokens.view()};
        for (int round = 0; round < 2; ++round) {
            CHECK(distance(embedding.forward(pass, saved), expected.at("y"), setup.block.order()) == 0);
            embedding.backward_data(
                pass, shard<dual_t<Embedding::output_layout>>(mesh, expected.at("dy"), setup.block.order()), saved);
            embedding.backward_weight(pass, saved);
        }
        table.for_each_parameter([&](auto const& parameter) {
            Whole twice = expected.at(pads ? "dtable_padding" : "dtable");
            for (auto& value : twice.values) value *= 2;
            CHECK(distance_with_padding(reduced_gradient(parameter), twice) < 1e-13);
        });
    }
}

TEST_CASE("the cross-entropy is PyTorch's on any mesh, with ignored targets and a padded vocabulary") {
    Arrays const expected = golden("vocabulary");
    for (auto const& m : meshes(fits)) {
        INFO(m.text());
        OnMesh const mesh(m);
        auto const found = run_head(mesh, expected, 1 / expected.at("valid").values[0]);
        CHECK(distance(found.at("loss_sum"), expected.at("loss_sum")) < 1e-13);
        CHECK(distance(found.at("dx"), expected.at("dx")) < 1e-12);
    }
}

TEST_CASE("ranks of tp that hold nothing but padding: 4 words on up to 6 ranks") {
    Arrays in{{"x", drawn({4, 12, 8}, "x")}, {"head", drawn({4, 8}, "head")}, {"targets", {{4, 12}, {}}}};
    for (std::size_t i = 0; i < 48; ++i)
        in["targets"].values.push_back(i % 7 == 0 ? -1 : static_cast<double>(i * i % 4));
    Arrays const alone = run_head(Alone(), in, 0.25);
    for (auto const& m : meshes(fits)) {
        INFO(m.text());
        OnMesh const mesh(m);
        auto const found = run_head(mesh, in, 0.25);
        for (char const* name : {"loss_sum", "dx", "dhead"})
            CHECK_MESSAGE(distance(found.at(name), alone.at(name)) < 1e-12, name);
    }
}

TEST_CASE("without a valid target the loss is 0, and so are all gradients") {
    Arrays in = golden("vocabulary");
    in.erase("dhead");
    for (auto& target : in["targets"].values) target = -1;
    for (auto const& m : meshes(fits)) {
        OnMesh const mesh(m);
        for (auto const& [name, whole] : run_head(mesh, in, 0)) {
            INFO(m.text(), name);
            CHECK(distance(whole, Whole{whole.extents, std::vector<double>(whole.values.size(), 0.0)}) == 0);
        }
    }
}
