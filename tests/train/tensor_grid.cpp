// ranks: 1 4 8
//
// Tensor parallelism on a grid, in 2, 2.5 and 3 dimensions, trains as one rank does, and holds and sends what it
// should.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/tensor_grid.hpp>
#include <support/training.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

using namespace support;

namespace {

std::vector<double> of_one_rank(train::RunSettings const& settings, std::int64_t count) {
    OnMesh const alone({}, 0, MPI_COMM_SELF);
    Training<InvariantStream<f64>> training(alone, settings);
    return steps(training, 1, count);
}

template <class Stream>
double difference(TensorGridMesh const& grid, train::RunSettings const& settings) {
    auto const expected = of_one_rank(settings, 3);
    OnMesh const on(grid.shape(), grid.mesh());
    Training<Stream> training(on, settings);
    return worst(steps(training, 1, 3), expected);
}

train::RunSettings small() {
    auto settings = small_dense();
    change(settings, [](auto& sizes) { sizes.layers = 2; });
    return settings;
}

} // namespace

TEST_CASE("2D and 2.5D tensor parallelism train as one rank does") {
    auto run = small();
    for (auto const& grid : grids_of_all_ranks({{1, 1, 1}, {1, 2, 2}, {2, 2, 2}, {2, 1, 2}, {1, 4, 1}})) {
        INFO(grid.text());
        CHECK(difference<GridStream<f64>>(grid, run) < 1e-12);
    }
    change(run, [](auto& sizes) { sizes.ties_embeddings = true; });
    run.strategy.sharding.stage = 3;
    for (auto const& grid : grids_of_all_ranks({{1, 2, 2}, {1, 2, 2, {.dp = 2}}, {1, 2, 2, {.cp = 2}}, {2, 2, 2}})) {
        INFO(grid.text());
        CHECK(difference<GridStream<f64>>(grid, run) < 1e-12);
    }
}

TEST_CASE("3D tensor parallelism trains as one rank does") {
    auto run = small();
    for (auto const& grid : grids_of_all_ranks({{1, 1, 1}, {1, 2, 2}, {2, 2, 2}, {2, 2, 1}})) {
        INFO(grid.text());
        CHECK(difference<CubeStream<f64>>(grid, run) < 1e-12);
    }
    change(run, [](auto& sizes) { sizes.ties_embeddings = true; });
    run.strategy.sharding.stage = 1;
    run.strategy.batch = 32;
    for (auto const& grid : grids_of_all_ranks({{2, 2, 1}, {2, 2, 1, {.dp = 2}}, {1, 2, 2, {.cp = 2}}, {2, 2, 2}})) {
        INFO(grid.text());
        CHECK(difference<CubeStream<f64>>(grid, run) < 1e-12);
    }
}

TEST_CASE("what a grid does not do is refused, not done wrong") {
    for (auto const& grid : grids_of_all_ranks({{1, 2, 2}, {2, 2, 2}})) {
        OnMesh const on(grid.shape(), grid.mesh());
        auto const refusal = [&](auto&& change_settings) {
            auto run = small();
            change_settings(run);
            try {
                Training<GridStream<f64>> const training(on, run);
                return std::string();
            } catch (std::invalid_argument const& error) {
                return std::string(error.what());
            }
        };
        CHECK(refusal([](auto& run) { run.packing = Packing{.last = 10}; }) ==
              "tensor parallelism on a grid does not pack documents: use one dimension");
        CHECK(refusal([](auto& run) {
                  run.strategy.block.attention_output = model::AttentionOutput::all_to_all;
              }).ends_with("d does not exchange heads for sequence behind attention: use one dimension"));
        CHECK(refusal([](auto& run) {
                  change(run, [](auto& sizes) { sizes.experts = 4; });
              }).ends_with("d is of attention and MLPs, not of experts"));
        CHECK(refusal([](auto& run) { run.strategy.batch = 4; }).find("is not divisible by dp x the grid of tp") !=
              std::string::npos);
    }
}

TEST_CASE("sums of bf16 over a grid are made in f32") {
    auto const run = small();
    for (auto const& grid : grids_of_all_ranks({{1, 2, 2}, {2, 2, 2}})) {
        OnMesh const on(grid.shape(), grid.mesh());
        Training<GridStream<bf16>> training(on, run);
        CHECK(worst(steps(training, 1, 3), of_one_rank(run, 3)) < 0.05);
    }
}
