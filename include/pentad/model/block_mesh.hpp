// Meshes of single blocks.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/mesh/value_mesh.hpp>
#include <pentad/model/block_strategy.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/tensor_kind.hpp>

#include <array>
#include <span>
#include <stdexcept>
#include <string_view>

namespace pentad::model {

/// `mesh` as a block sees it: dp x cp x tp of the ranks of each stage, in this nest. The axes of stages and experts
/// stay.
/// @throws std::invalid_argument where the ranks cannot be nested so
inline ValueMesh mesh_of_block(std::span<MeshAxisValue const> mesh, Model const& model, BlockStrategy const& block) {
    auto const extent = [&](std::string_view axis) { return find_axis(mesh, axis).extent; };
    int const cp_ranks = static_cast<int>(block.mesh->cp), tp_ranks = static_cast<int>(block.mesh->tp);
    int const dp_ranks = extent(ml::dp::name) * extent(ml::cp::name) * extent(ml::tp::name) / (cp_ranks * tp_ranks);
    std::array<MeshAxisValue, 3> const extents{
        {{ml::dp::name, dp_ranks}, {ml::cp::name, cp_ranks}, {ml::tp::name, tp_ranks}}};
    if (block.tensor_kind != TensorKind::one_d && !tensor_factors(block.tensor_kind, tp_ranks))
        throw std::invalid_argument(no_grid(block.tensor_kind, tp_ranks));
    auto const split = tensor_split(model, block.tensor_kind, tp_ranks);
    auto own = refolded(mesh, extents).split<ml::tp>(split.inner).split<ml::cp>(static_cast<int>(block.inner_cp));
    return split.innermost == 1 ? own : own.split<inner<ml::tp>>(split.innermost); // which ranks of two pieces have not
}

/// Whether two blocks of a model see their ranks as the same mesh.
[[nodiscard]] constexpr bool are_on_one_mesh(BlockStrategy const& a, BlockStrategy const& b) {
    return a.mesh == b.mesh && (!a.mesh || (a.tensor_kind == b.tensor_kind && a.inner_cp == b.inner_cp));
}

} // namespace pentad::model
