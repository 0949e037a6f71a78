// Meshes whose tp is a grid, for tests of tensor parallelism in two and three dimensions.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/model/tensor_kind.hpp>

#include <support/on_mesh.hpp>

#include <array>
#include <string>
#include <vector>

namespace support {

/// The factors of tp, and the other axes.
struct TensorGridMesh {
    int first = 1, second = 1, columns = 1;
    MeshShape others{};

    [[nodiscard]] int tp() const { return first * second * columns; }
    [[nodiscard]] int ranks() const { return others.ranks() * tp(); }
    [[nodiscard]] std::string text() const {
        return others.text() + " x " + std::to_string(first) + " x " + std::to_string(second) + " x " +
               std::to_string(columns);
    }
    [[nodiscard]] MeshShape shape() const {
        auto m = others;
        m.tp = tp();
        return m;
    }
    [[nodiscard]] model::ModelMesh mesh() const {
        return OnMesh::mesh(shape(), 0).split<ml::tp>(second * columns).split<inner<ml::tp>>(columns);
    }
};

/// Those of all ranks of this run, of these.
inline std::vector<TensorGridMesh> grids_of_all_ranks(std::vector<TensorGridMesh> const& grids) {
    std::vector<TensorGridMesh> found;
    for (auto const& grid : grids)
        if (grid.ranks() == world_size()) found.push_back(grid);
    return found;
}

} // namespace support
