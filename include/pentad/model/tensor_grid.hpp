// How the ranks of tp share a layer, in one dimension or as a grid of two or three, and what that divides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

namespace pentad::model {

/// The dimensions of tensor parallelism; layout/streams.hpp says how activations lie.
enum class TensorKind : std::uint8_t {
    one_d,          ///< a rank has a share of each weight, and whole activations between layers
    two_d,          ///< rows x columns: weights and activations in blocks (Xu et al. 2021, arXiv 2104.05343)
    two_and_half_d, ///< depth x rows x columns, rows = columns: the depth shares the batch (Wang et al. 2021, arXiv
                    ///< 2105.14500)
    three_d         ///< rows x depth x columns (Bian et al. 2021, arXiv 2105.14450)
};
inline constexpr std::array<std::string_view, 4> tensor_kind_names{"1d", "2d", "2.5d", "3d"};
inline std::string_view name(TensorKind kind) { return tensor_kind_names[static_cast<std::size_t>(kind)]; }

/// The factors of tp: of outer(tp), outer(inner(tp)) and inner(inner(tp)). 2D: 1, rows, columns; 2.5D: depth, rows,
/// columns; 3D: rows, depth, columns.
struct TensorFactors {
    std::int64_t first = 1, second = 1, columns = 1;

    /// The extent of inner(tp).
    [[nodiscard]] constexpr std::int64_t inner() const { return second * columns; }
};

/// The grid of so many ranks that is nearest to a square or a cube, with at least as many rows as columns; nothing
/// where one of its sides would be 1. In one dimension there is none.
constexpr std::optional<TensorFactors> tensor_factors(TensorKind kind, std::int64_t tp) {
    std::optional<TensorFactors> best;
    switch (kind) {
    case TensorKind::one_d:
        return std::nullopt;
    case TensorKind::two_d:
        for (std::int64_t columns = 2; columns * columns <= tp; ++columns)
            if (tp % columns == 0) best = {1, tp / columns, columns};
        return best;
    case TensorKind::two_and_half_d:
        for (std::int64_t side = 2; 2 * side * side <= tp; ++side)
            if (tp % (side * side) == 0) best = {tp / (side * side), side, side};
        return best;
    case TensorKind::three_d:
        for (std::int64_t columns = 2; columns * columns * columns <= tp; ++columns)
            for (std::int64_t depth = columns; tp % columns == 0 && columns * depth * depth <= tp; ++depth)
                if (tp % (columns * depth) == 0) best = {tp / (columns * depth), depth, columns};
        return best;
    }
    return best;
}
/// Ranks of tp that share out the heads.
constexpr std::int64_t ranks_of_heads(TensorKind kind, std::int64_t tp) {
    auto const grid = tensor_factors(kind, tp);
    return grid ? grid->columns : tp;
}
/// Why tp ranks are no such grid.
inline std::string no_grid(TensorKind kind, std::int64_t tp) {
    std::string const wanted = kind == TensorKind::two_d ? "rows x columns, both above 1, such as 4 = 2 x 2"
                               : kind == TensorKind::two_and_half_d
                                   ? "depth x rows x rows, both above 1, such as 8 = 2 x 2 x 2"
                                   : "rows x depth x columns, all above 1, such as 8 = 2 x 2 x 2";
    return "tp = " + std::to_string(tp) + " is no " + std::string(name(kind)) + " grid: that has " + wanted + " ranks";
}

/// What the extents of a layer are divided by.
struct TensorDivisors {
    std::int64_t batch = 1, hidden = 1, heads = 1, kv_heads = 1, width = 1;
};
constexpr TensorDivisors divisors(TensorKind kind, TensorFactors const& f) {
    if (kind == TensorKind::three_d)
        return {f.first * std::lcm(f.second, f.columns), f.second * f.first, f.columns * f.first, f.columns,
                f.columns * f.first};
    auto const both = std::lcm(f.second, f.columns);
    return {f.first * f.second, both, both, f.columns, both};
}

} // namespace pentad::model
