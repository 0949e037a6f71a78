// A linear map y = x W^T between layouts: column-parallel, row-parallel or neither, as the weight's
// layout says. Its output layout and how its weight's gradient is synchronised follow from the two layouts it is given.
#pragma once

#include <pentad/kernels/bias.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/overlap.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad {

namespace detail {
/// The first `Out` dimensions of a weight, by themselves.
template <class W, std::size_t Out>
struct OutputDimensions {
    template <class List>
    struct Of;
    template <class... D>
    struct Of<DimList<D...>> {
        using type = Layout<typename W::element, Dims<D...>>;
    };
    using type = typename Of<typename SplitAt<Out, DimList<>, typename LayoutDims<W>::type>::head>::type;
};
} // namespace detail

/// The parameters of a linear map, with or without a bias: y[rows, out...] = sum over in of x[rows, in...] W[out...,
/// in...]
/// (+ bias[out...]); derived classes multiply. `W` is the weight's layout, whose first `Out` dimensions are the
/// output's; `X` and `Y` are the layouts of x and y.
template <class X, class W, std::size_t Out, class Y, class Exec>
class LinearMap {
  public:
    using input_layout = X;
    using output_layout = Y;
    using parameter_type = Parameter<W, used_t<W, X, Y>, Exec>;
    using Bias = typename detail::OutputDimensions<W, Out>::type;
    using bias_type = Parameter<Bias, used_t<Bias, Y>, Exec>;
    using execution_space = Exec;
    using T = typename X::element;
    static constexpr std::size_t in_dimensions = W::rank - Out;
    static constexpr std::size_t out_dimensions = Out;

    LinearMap() = default;
    /// @param name of the map: its weight is name.weight, its bias name.bias
    LinearMap(Context<Exec> const& context, std::string const& name,
              typename parameter_type::extents_type const& extents, bool has_bias = false)
        : weight_(context, name + ".weight", extents) {
        weight_.set_matrix_dimensions({.rows = Out});
        if (!has_bias) return;
        if constexpr (is_partial<Y>) {
            throw std::invalid_argument(name + ": a bias is added to whole values, and this map gives summands");
        } else {
            typename bias_type::extents_type outputs{};
            std::copy_n(extents.begin(), Out, outputs.begin());
            bias_ = bias_type(context, name + ".bias", outputs, {.deviation = 0}, 0, false);
        }
    }

    /// The global extents of the product of x, given those of x.
    [[nodiscard]] std::array<std::size_t, Y::rank> extents(std::array<std::size_t, X::rank> const& x) const {
        std::array<std::size_t, Y::rank> result{};
        std::size_t const rows = X::rank - in_dimensions;
        for (std::size_t d = 0; d < rows; ++d) result[d] = x[d];
        for (std::size_t d = 0; d < Out; ++d) result[rows + d] = weight_.value().extents()[d];
        return result;
    }
    template <class F>
    void for_each_parameter(F&& f) {
        f(weight_);
        if (bias_.exists()) f(bias_);
    }
    [[nodiscard]] parameter_type const& weight() const { return weight_; }
    [[nodiscard]] bias_type const& bias() const { return bias_; }
    /// The weight is rows of a published tensor.
    void publish_as(PublishedRows rows) { weight_.publish_as(std::move(rows)); }
    /// This rank's shard of the weight, and of its gradient, as a matrix [out, in].
    [[nodiscard]] View<T, 2, Exec> matrix() const { return as_matrix(weight_.value()); }
    [[nodiscard]] View<typename parameter_type::accumulator, 2, Exec> gradient_matrix() const {
        return as_matrix(weight_.gradient());
    }

  private:
    template <class L>
    [[nodiscard]] static View<typename L::element, 2, Exec> as_matrix(Tensor<L, Exec> const& tensor) {
        std::size_t columns = 1;
        for (std::size_t d = Out; d < W::rank; ++d) columns *= tensor.local()[d];
        return View<typename L::element, 2, Exec>(tensor.array_data(), tensor.size() / columns, columns);
    }

    parameter_type weight_;
    bias_type bias_; ///< where there is one
};

/// A linear map that each rank computes with what it holds. Refused with a sentence where the layouts of x and of the
/// weight do not fit.
template <class X, class W, std::size_t Out, class Exec>
class Linear : public LinearMap<X, W, Out, product_t<X, W, Out>, Exec> {
    static_assert((require_multipliable<X, W, Out>(), true));
    using Map = LinearMap<X, W, Out, product_t<X, W, Out>, Exec>;

  public:
    using output_layout = typename Map::output_layout;
    using T = typename Map::T;
    using Map::in_dimensions;
    using Map::Map;

    struct Saved {
        Tensor<X, Exec> x;
        Tensor<dual_t<output_layout>, Exec> dy;
    };

    /// y = x W^T for some rows.
    void multiply(Tensor<X, Exec> const& x, RowRange rows, Tensor<output_layout, Exec> const& y) const {
        auto const out = detail::rows_of<Out>(y, rows);
        kernels::gemm(x.context().exec(), kernels::Transpose::no, kernels::Transpose::yes, 1.0,
                      detail::rows_of<in_dimensions>(x, rows), this->matrix(), 0.0, out);
        if (this->bias().exists()) kernels::add_bias<T>(x.context().exec(), this->bias().value().flat(), out);
    }
    /// dx = dy W for some rows, added to dx when `add`: several maps of one input share its gradient.
    void multiply_back(Tensor<dual_t<output_layout>, Exec> const& dy, RowRange rows, Tensor<dual_t<X>, Exec> const& dx,
                       bool add) const {
        kernels::gemm(dy.context().exec(), kernels::Transpose::no, kernels::Transpose::no, 1.0,
                      detail::rows_of<Out>(dy, rows), this->matrix(), add ? 1.0 : 0.0,
                      detail::rows_of<in_dimensions>(dx, rows));
    }
    /// dW += dy^T x
    void add_weight_gradient(Tensor<X, Exec> const& x, Tensor<dual_t<output_layout>, Exec> const& dy) const {
        auto const& exec = x.context().exec();
        kernels::gemm(exec, kernels::Transpose::yes, kernels::Transpose::no, 1.0, dy.template array_rows<Out>(),
                      x.template rows<in_dimensions>(), 1.0, this->gradient_matrix());
        if (this->bias().exists())
            kernels::add_bias_gradient<T>(exec, dy.template array_rows<Out>(), this->bias().gradient().array_flat());
    }

    /// [rows, in] -> [rows, out]
    Tensor<output_layout, Exec> forward(Tensor<X, Exec> const& x, Saved& saved) const {
        Tensor<output_layout, Exec> y(x.context(), this->extents(x.extents()));
        multiply(x, detail::all_rows<in_dimensions>(x), y);
        saved.x = x;
        return y;
    }
    Tensor<dual_t<X>, Exec> backward_data(Tensor<dual_t<output_layout>, Exec> dy, Saved& saved) const {
        Tensor<dual_t<X>, Exec> dx(dy.context(), saved.x.extents());
        multiply_back(dy, detail::all_rows<Out>(dy), dx, false);
        saved.dy = std::move(dy);
        return dx;
    }
    void backward_weight(Saved& saved) const {
        add_weight_gradient(saved.x, saved.dy);
        saved = {};
    }
};

/// A weight [out, in] whose output dimension is sharded over tp, on an input replicated over tp.
template <class OutDimension, class InDimension, class X, class Exec>
using ColumnParallel =
    Linear<X, Layout<typename X::element, Dims<Dim<OutDimension, dynamic, ml::tp>, Dim<InDimension>>>, 1, Exec>;
/// A weight [out, in] whose input dimension is sharded over tp, on an input sharded the same way; it gives partial
/// sums.
template <class OutDimension, class InDimension, class X, class Exec>
using RowParallel =
    Linear<X, Layout<typename X::element, Dims<Dim<OutDimension>, Dim<InDimension, dynamic, ml::tp>>>, 1, Exec>;

} // namespace pentad
