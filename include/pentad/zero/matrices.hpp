// Work on the whole matrices of parameters that ranks hold in shards. The shards become whole by the plan to
// replicated, the matrices are dealt out to the ranks, and the results come back by its adjoint, in which a rank's
// summand of a matrix that another rank worked on is zero.
#pragma once

#include <pentad/kernels/muon.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/model/optimizer.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/zero/layouts.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::zero {

/// The matrices of a parameter: how many this rank has, whole or a shard of each, and their whole shape.
struct ParameterMatrices {
    std::size_t count = 0; ///< 0: the parameter is none
    model::MatrixShape shape{};
    AxisNames axes; ///< those that shard rows or columns
    LayoutValue stored, whole, summands;
    PlanValue gathering;  ///< stored -> whole, replicated over the axes
    PlanValue scattering; ///< its adjoint: from summands to stored
};

template <class T, class Exec>
ParameterMatrices matrices_of(AnyParameter<T, Exec> const& parameter) {
    using A = accumulator_t<T>;
    ParameterMatrices result;
    auto const [stacked, rows] = parameter.matrix_dimensions();
    if (rows == 0) return result;
    result.stored = parameter.stored_layout();
    result.stored.element = Element<A>::name;
    result.stored.element_size = sizeof(A);
    result.whole = result.stored;
    result.count = result.shape.rows = result.shape.columns = 1;
    for (std::size_t d = 0; d < stacked; ++d) result.count *= parameter.local_extents()[d];
    for (std::size_t d = stacked; d < result.stored.rank; ++d) {
        (d < stacked + rows ? result.shape.rows : result.shape.columns) *= parameter.global_extents()[d];
        for (auto const axis : std::exchange(result.whole.dimensions[d].axes, {})) result.axes.push(axis);
    }
    result.summands = result.whole;
    result.whole.replicated = result.summands.partial = result.axes;
    result.gathering = make_plan(result.stored, result.whole);
    result.scattering = make_plan(result.summands, result.stored);
    return result;
}

/// Orthogonalises the matrices of a parameter in place, in this rank's shard of them, as Muon does, scaled by
/// rate_factor(). Collective over the axes that shard them.
/// @param is_here whether this rank works on matrix i of its count
template <class A, class Exec, class IsHere>
void orthogonalise(Context<Exec> const& context, ParameterMatrices const& matrices,
                   pentad::detail::Shard<A, Exec> const& shard, model::Muon const& muon, IsHere const& is_here) {
    auto const& exec = context.exec();
    auto const [rows, columns] = matrices.shape;
    std::size_t const size = rows * columns;
    auto whole = pentad::detail::carry_out(context, matrices.gathering, shard);
    {
        Tensor<NormSquare, Exec> const squares(context, {});
        Tensor<Whole<A>, Exec> workspace;
        for (std::size_t i = 0; i < matrices.count; ++i) {
            View<A, 2, Exec> const matrix(whole.data + i * size, rows, columns);
            if (!is_here(i)) {
                memory::clear(exec, matrix.data(), size * sizeof(A));
                continue;
            }
            if (workspace.empty())
                workspace = Tensor<Whole<A>, Exec>(context, {kernels::newton_schulz_workspace(rows, columns)});
            kernels::newton_schulz<A>(exec, matrix, workspace.flat(), squares.array(), muon.iterations, muon.epsilon,
                                      model::rate_factor(muon.rate, matrices.shape));
        }
    }
    auto const result = pentad::detail::carry_out(context, matrices.scattering, std::move(whole));
    if (result.data != shard.data) memory::copy(exec, shard.data, result.data, result.size() * sizeof(A));
}

/// The matrices of a bucket, which are dealt out to all ranks that hold parts of them.
template <class T, class Exec>
class BucketMatrices {
  public:
    using A = accumulator_t<T>;
    using Shard = pentad::detail::Shard<A, Exec>;

    /// Collective over the ranks of its plans.
    BucketMatrices(Context<Exec> const& context, BucketLayouts const& layouts, model::Muon const& muon)
        : context_(&context), muon_(muon) {
        auto replicated = layouts.gradient, summands = layouts.gradient;
        replicated.replicated = std::exchange(replicated.partial, {});
        gathering_ = make_plan(layouts.state, replicated);
        scattering_ = make_plan(summands, layouts.state);
        workers_ = layouts.gradient.partial;
        pentad::detail::prepare(context, gathering_);
        pentad::detail::prepare(context, scattering_);
    }
    /// Collective likewise. @param offset in the bucket
    void add(AnyParameter<T, Exec> const& parameter, std::size_t offset) {
        auto& piece = pieces_.emplace_back(Piece{matrices_of(parameter), parameter.local_extents(), offset, {}});
        pentad::detail::prepare(*context_, piece.matrices.gathering);
        pentad::detail::prepare(*context_, piece.matrices.scattering);
    }
    /// To be called when it has all of them.
    void deal() {
        if (pieces_.empty()) return;
        auto workers = detail::joined(workers_, pieces_.front().matrices.axes); // the same of each piece
        std::size_t ranks = 1;
        for (auto const axis : workers) ranks *= static_cast<std::size_t>(context_->communicators().extent(axis));
        std::size_t const here = context_->communicators().shard_index(workers);
        std::vector<double> work;
        for (auto const& piece : pieces_)
            work.insert(work.end(), piece.matrices.count,
                        model::newton_schulz_flops(piece.matrices.shape, muon_.iterations));
        auto const rank_of = model::deal(work, ranks);
        std::size_t next = 0;
        for (auto& piece : pieces_)
            for (std::size_t i = 0; i < piece.matrices.count; ++i) piece.is_here.push_back(rank_of[next++] == here);
    }

    /// From this rank's shard of the bucket, in the layout of the optimizer state, to the same of the orthogonalised
    /// matrices. Collective.
    [[nodiscard]] Shard orthogonalised(Shard shard) const {
        auto whole = pentad::detail::carry_out(*context_, gathering_, std::move(shard));
        for (auto const& piece : pieces_) {
            Shard const part{{piece.extents, piece.matrices.stored.rank}, {}, whole.data + piece.offset};
            orthogonalise(*context_, piece.matrices, part, muon_, [&](std::size_t i) { return piece.is_here[i]; });
        }
        return pentad::detail::carry_out(*context_, scattering_, std::move(whole));
    }

  private:
    struct Piece {
        ParameterMatrices matrices;
        std::array<std::size_t, max_dimensions> extents; ///< of this rank's shard
        std::size_t offset;
        std::vector<bool> is_here; ///< of each matrix
    };

    Context<Exec> const* context_;
    model::Muon muon_;
    PlanValue gathering_, scattering_;
    AxisNames workers_;
    std::vector<Piece> pieces_;
};

} // namespace pentad::zero
