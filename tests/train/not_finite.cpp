// ranks: 1 2 4
//
// A step whose loss or gradient is not finite changes nothing, and says where it came from; after some in a row the
// trainer gives up.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace support;

namespace {

train::RunSettings small_run() {
    return {.model = model::decoder({.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 12, .vocab = 40}),
            .strategy = {.batch = 8, .micro_batches = 2, .seq = 12, .sharding = {.stage = 1}},
            .steps = 9,
            .learning_rate = 0.01,
            .warmup = 0};
}
MeshShape shape_of_run() { return world_size() == 4 ? MeshShape{.dp = 2, .pp = 2} : MeshShape{.pp = world_size()}; }

template <class T>
std::vector<T> weights(Training<InvariantStream<T>>& training) {
    std::vector<T> all;
    training.trainer.model().for_each_parameter([&](auto const& parameter) {
        std::vector<T> own(parameter.size());
        parameter.get(own.data());
        all.insert(all.end(), own.begin(), own.end());
    });
    return all;
}

/// Writes a value into the first element of the parameter of this name, on the ranks that hold it.
template <class T>
void write(Training<InvariantStream<T>>& training, std::string const& name, T value) {
    training.trainer.model().for_each_parameter([&](auto const& parameter) {
        if (parameter.name() != name) return;
        std::vector<T> own(parameter.size());
        parameter.get(own.data());
        own[0] = value;
        parameter.set(own.data());
    });
}

} // namespace

TEST_CASE_TEMPLATE("a step that is not finite changes no weight, and the next good one goes on", T, f64, f32) {
    OnMesh const mesh(shape_of_run());
    Training<InvariantStream<T>> training(mesh, small_run());
    auto& trainer = training.trainer;
    CHECK(trainer.step(1).not_finite.empty());
    write<T>(training, "model.layers.1.mlp.up_proj.weight", std::numeric_limits<T>::infinity());
    auto const before = weights(training);
    auto const result = trainer.step(2);
    int const holder = world_size() == 1 ? 0 : 1; // of the last stage, the first
    CHECK(result.not_finite ==
          "the loss on rank " + std::to_string(holder) + " (stage " + std::to_string(world_size() == 1 ? 0 : 1) + ")");
    CHECK(!std::isfinite(result.loss));
    CHECK(weights(training) == before);
    write<T>(training, "model.layers.1.mlp.up_proj.weight", T(0.01));
    CHECK(trainer.step(3).not_finite.empty());
    CHECK(weights(training) != before);
}

TEST_CASE("it is the third in a row that ends the run") {
    OnMesh const mesh(shape_of_run());
    Training<InvariantStream<f32>> training(mesh, small_run());
    auto& trainer = training.trainer;
    auto const nan = std::numeric_limits<f32>::quiet_NaN();
    write(training, "model.layers.0.mlp.gate_proj.weight", nan);
    CHECK(!trainer.step(1).not_finite.empty());
    CHECK(!trainer.step(2).not_finite.empty());
    write(training, "model.layers.0.mlp.gate_proj.weight", 0.01F);
    CHECK(trainer.step(3).not_finite.empty());
    write(training, "model.layers.0.mlp.gate_proj.weight", nan);
    CHECK(!trainer.step(4).not_finite.empty());
    CHECK(!trainer.step(5).not_finite.empty());
    std::string said;
    try {
        trainer.step(6);
    } catch (train::NotFinite const& error) {
        said = error.what();
    }
    CHECK(said.find("step 6: the loss on rank ") == 0);
    CHECK(said.find("is not finite, and so were the 2 steps before") != said.npos);
}

TEST_CASE("squares that overflow in the norm show as a loss that is not finite, not as one of zeros") {
    OnMesh const mesh(shape_of_run());
    Training<InvariantStream<f32>> training(mesh, small_run());
    training.trainer.model().for_each_parameter([&](auto const& parameter) {
        if (parameter.name() != "model.embed_tokens.weight") return;
        std::vector<f32> const large(parameter.size(), 1e25F);
        parameter.set(large.data());
    });
    CHECK(training.trainer.step(1).not_finite.find("the loss on rank ") == 0);
}

TEST_CASE("a gradient that is not finite is named where the loss is finite") {
    OnMesh const mesh(shape_of_run());
    auto settings = small_run();
    change(settings, [&](auto& sizes) { sizes.experts = 2; });
    settings.z_coefficient = 1e300; // the loss itself is reported without it
    Training<InvariantStream<f32>> training(mesh, settings);
    auto const result = training.trainer.step(1);
    CHECK(std::isfinite(result.loss));
    CHECK(result.not_finite.find("the gradient of model.") == 0);
}

TEST_CASE("an asynchronous schedule, which has updated the weights by then, ends the run at once") {
    if (world_size() != 2) return;
    OnMesh const mesh(MeshShape{.pp = 2});
    auto settings = small_run();
    settings.clip = 0;
    settings.strategy.micro_batches = 4;
    Training<InvariantStream<f32>> training(mesh, settings,
                                            pipeline::generate("pipedream", {.ranks = 2, .micro_batches = 4}));
    write(training, "model.layers.0.mlp.gate_proj.weight", std::numeric_limits<f32>::quiet_NaN());
    CHECK_THROWS_AS(training.trainer.step(1), train::NotFinite);
}
