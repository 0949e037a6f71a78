// Room: layers. A linear map y = x W^T between layouts: column-parallel, row-parallel or neither, as the weight's
// layout says. What it gives and how its weight's gradient is synchronised follow from the two layouts it is given.
#pragma once

#include <pentad/kernels/gemm.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>

#include <string>
#include <utility>

namespace pentad {

/// y[rows, out...] = sum over in of x[rows, in...] W[out..., in...]. `W` is the weight's layout, whose first `Out`
/// dimensions are the output's; `X` is the layout of x. Refused with a sentence when the two do not fit.
template <class X, class W, std::size_t Out, class Exec>
class Linear {
    static_assert((require_multipliable<X, W, Out>(), true));

  public:
    using takes = X;
    using gives = product_t<X, W, Out>;
    using parameter_type = Parameter<W, used_t<W, X, gives>, Exec>;
    using T = typename X::element;
    static constexpr std::size_t in_dimensions = W::rank - Out;

    struct Saved {
        Tensor<X, Exec> x;
        Tensor<dual_t<gives>, Exec> dy;
    };

    Linear() = default;
    Linear(Context<Exec> const& context, std::string name, typename parameter_type::extents_type const& extents,
           Initialiser initialiser = {})
        : weight_(context, std::move(name), extents, initialiser) {}

    /// [rows, in] -> [rows, out]
    Tensor<gives, Exec> forward(Tensor<X, Exec> const& x, Saved& saved) const {
        Tensor<gives, Exec> y(x.context(), extents_of_product(x));
        kernels::gemm(x.context().exec(), kernels::Transpose::no, kernels::Transpose::yes, 1.0, rows_of(x), matrix(),
                      0.0, y.template rows<Out>());
        saved.x = x;
        return y;
    }
    /// dx = dy W, added to dx when `add`: several maps of one input share its gradient.
    void backward_data(Tensor<dual_t<gives>, Exec> dy, Saved& saved, Tensor<dual_t<X>, Exec> const& dx,
                       bool add) const {
        kernels::gemm(dy.context().exec(), kernels::Transpose::no, kernels::Transpose::no, 1.0, dy.template rows<Out>(),
                      matrix(), add ? 1.0 : 0.0, rows_of(dx));
        saved.dy = std::move(dy);
    }
    Tensor<dual_t<X>, Exec> backward_data(Tensor<dual_t<gives>, Exec> dy, Saved& saved) const {
        Tensor<dual_t<X>, Exec> dx(dy.context(), saved.x.extents());
        backward_data(std::move(dy), saved, dx, false);
        return dx;
    }
    /// dW += dy^T x
    void backward_weight(Saved& saved) const {
        auto const& g = weight_.gradient();
        std::size_t const columns = input_columns();
        View<typename parameter_type::accumulator, 2, Exec> const gradient(g.data(), g.size() / columns, columns);
        kernels::gemm(g.context().exec(), kernels::Transpose::yes, kernels::Transpose::no, 1.0,
                      saved.dy.template rows<Out>(), rows_of(saved.x), 1.0, gradient);
        saved = {};
    }
    template <class F>
    void for_each_parameter(F&& f) {
        f(weight_);
    }
    [[nodiscard]] parameter_type const& weight() const { return weight_; }

  private:
    [[nodiscard]] std::size_t input_columns() const {
        std::size_t columns = 1;
        for (std::size_t d = Out; d < W::rank; ++d) columns *= weight_.value().local()[d];
        return columns;
    }
    [[nodiscard]] View<T, 2, Exec> matrix() const {
        std::size_t const columns = input_columns();
        return View<T, 2, Exec>(weight_.value().data(), weight_.value().size() / columns, columns);
    }
    template <class L>
    static View<T, 2, Exec> rows_of(Tensor<L, Exec> const& tensor) {
        return tensor.template rows<in_dimensions>();
    }
    [[nodiscard]] std::array<std::size_t, gives::rank> extents_of_product(Tensor<X, Exec> const& x) const {
        std::array<std::size_t, gives::rank> extents{};
        std::size_t const rows = X::rank - in_dimensions;
        for (std::size_t d = 0; d < rows; ++d) extents[d] = x.extents()[d];
        for (std::size_t d = 0; d < Out; ++d) extents[rows + d] = weight_.value().extents()[d];
        return extents;
    }

    parameter_type weight_;
};

/// A weight [out, in] whose output dimension is sharded over tp, on an input replicated over tp.
template <class OutDimension, class InDimension, class X, class Exec>
using ColumnParallel =
    Linear<X, Layout<typename X::element, Dims<Dim<OutDimension, dynamic, tp>, Dim<InDimension>>>, 1, Exec>;
/// A weight [out, in] whose input dimension is sharded over tp, on an input sharded the same way; it gives partial
/// sums.
template <class OutDimension, class InDimension, class X, class Exec>
using RowParallel =
    Linear<X, Layout<typename X::element, Dims<Dim<OutDimension>, Dim<InDimension, dynamic, tp>>>, 1, Exec>;

} // namespace pentad
