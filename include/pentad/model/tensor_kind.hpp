// The kinds of tensor parallelism (tensor_grid.hpp), and models and meshes.
#pragma once

#include <pentad/layout/streams.hpp>
#include <pentad/mesh/axis.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/model/batch_shape.hpp>
#include <pentad/model/block_strategy.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/model/tensor_grid.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::model {

/// The layout of a block's residual stream, of elements T.
template <class T>
constexpr LayoutValue const& stream_layout(BlockStrategy const& block) {
    if (block.tensor_kind == TensorKind::three_d) return CubeStream<T>::value;
    if (block.tensor_kind != TensorKind::one_d) return GridStream<T>::value;
    return block.sequence_parallel ? SequenceStream<T>::value : InvariantStream<T>::value;
}

/// The axes that share out the sequences of a batch, with what tp does of it.
inline NamedProduct batch_axes(NamedProduct axes, TensorDivisors const& of) {
    if (of.batch > 1) axes.times("the grid of tp", of.batch);
    return axes;
}

/// The extents of inner(tp) and of inner(inner(tp)) that tensor parallelism needs: of the grid, or in one dimension of
/// what tp exceeds the heads of keys and values by.
struct TensorSplit {
    int inner = 1, innermost = 1;
};
inline TensorSplit tensor_split(Model const& model, TensorKind kind, int tp) {
    if (auto const grid = tensor_factors(kind, tp))
        return {static_cast<int>(grid->inner()), static_cast<int>(grid->columns)};
    return {key_value_copies(model, tp), 1};
}
/// The mesh with tp split so. @throws std::invalid_argument where tp is no such grid
template <class Mesh, AxisTag Tp>
[[nodiscard]] Mesh split_tensor_axis(Mesh const& mesh, Tp, Model const& model, TensorKind kind) {
    int const extent = mesh.template extent<Tp>();
    if (kind != TensorKind::one_d && !tensor_factors(kind, extent)) throw std::invalid_argument(no_grid(kind, extent));
    auto const split = tensor_split(model, kind, extent);
    return mesh.template split<Tp>(split.inner).template split<inner<Tp>>(split.innermost);
}

/// Why a model cannot be computed on a grid; nothing where it can: there are layers of all its parts for it.
inline std::optional<Refusal> grid_refusal(Model const& model, TensorKind kind, AttentionOutput output) {
    std::string const grid = "block.tensor_kind = " + std::string(name(kind));
    std::optional<Refusal> refused;
    detail::for_each_part(model, [&](Part const& part) {
        if (part.is_for_grids()) return false;
        refused = {"block.tensor_kind", grid + " is of attention and MLPs, not of " + std::string(part.kind())};
        return true;
    });
    if (refused) return refused;
    if (!model.predictors.empty())
        return Refusal{"block.tensor_kind", grid + " does not predict more than one token: use one dimension"};
    if (output != AttentionOutput::reduce_scatter)
        return Refusal{"block.attention_output", grid +
                                                     " does not exchange heads for sequence behind attention: use one "
                                                     "dimension"};
    return std::nullopt;
}

} // namespace pentad::model
