// The short causal convolution of a state-space layer over a sequence that may be sharded over cp.
#pragma once

#include <pentad/kernels/causal_convolution.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace pentad {

namespace detail {
template <class Channel>
struct FilterOf;
template <class T, class D>
struct FilterOf<Layout<T, Dims<D>>> {
    using type = Layout<T, Dims<D, Dim<ml::slot, 1>, Dim<ml::tap>>>;
};
} // namespace detail

/// y = silu(convolution of each channel of x) (kernels/causal_convolution.hpp), x being [batch, seq, channels].
/// @tparam Halo of X, what the ranks before give: context::Halo
template <class X, class Halo, class Exec>
class CausalConvolution {
  public:
    using T = typename X::element;
    using A = accumulator_t<T>;
    using Channel = last_dimension_t<X>;
    using Filter = typename detail::FilterOf<Channel>::type;
    using Gradient = Tensor<with_element_t<dual_t<X>, A>, Exec>;

    struct Saved {
        Tensor<X, Exec> x;
        Tensor<typename Halo::layout, Exec> before; ///< empty: nothing is in front of any sequence
        memory::Buffer<typename Exec::memory_space> sums;
    };

    /// @param rows of the published tensors rows.tensor + ".weight" [channels, 1, taps] and rows.tensor + ".bias" which
    /// are this convolution's
    CausalConvolution(LayerSetup<Exec> const& setup, std::string const& name, PublishedRows const& rows,
                      std::size_t channels, std::size_t taps)
        : weight_(setup.context, name + ".weight", {channels, 1, taps},
                  {.deviation = 1 / std::sqrt(3.0 * static_cast<double>(taps))}),
          bias_(setup.context, name + ".bias", {channels}, {.deviation = 0}), taps_(taps), slices_(setup.slices),
          stretches_(setup.partition()) {
        weight_.publish_as({rows.tensor + ".weight", rows.first, rows.count});
        bias_.publish_as({rows.tensor + ".bias", rows.first, rows.count});
        bool const is_whole = setup.slices == 1 && setup.context.communicators().extent(ml::cp::name) == 1;
        if (taps > 1 && !is_whole) halo_.emplace(taps - 1);
    }

    Tensor<X, Exec> forward(Pass<Exec>& pass, Tensor<X, Exec> x, Saved& saved) const {
        if (halo_) saved.before = halo_->forward(x, pass.stretches(stretches_), slices(pass));
        saved.x = std::move(x);
        return output_again(pass, saved);
    }
    Tensor<X, Exec> output_again(Pass<Exec>& pass, Saved const& saved) const {
        Tensor<X, Exec> y(pass.context, saved.x.extents());
        kernels::causal_convolution_forward<T>(pass.context.exec(), saved.x.rows(), saved.before.rows(), weight(),
                                               bias_.value().flat(), positions(pass), pass.stretches(stretches_).length,
                                               y.rows());
        return y;
    }
    /// The gradient of x; dy is consumed. That of the filter waits in `saved` for backward_weight.
    Tensor<dual_t<X>, Exec> backward_data(Pass<Exec>& pass, Gradient dy, Saved& saved) const {
        auto const& exec = pass.context.exec();
        std::size_t const seq = pass.stretches(stretches_).length, channels = saved.x.local()[2];
        kernels::causal_convolution_backward<T>(exec, saved.x.rows(), saved.before.rows(), weight(),
                                                bias_.value().flat(), positions(pass), seq, dy.rows(), dy.rows());
        saved.sums = pass.context.take((weight_.size() + bias_.size()) * sizeof(A));
        auto* const sums = static_cast<A*>(saved.sums.data());
        kernels::causal_convolution_backward_weight<T>(exec, saved.x.rows(), saved.before.rows(), positions(pass), seq,
                                                       dy.rows(), View<A, 2, Exec>(sums, channels, taps_),
                                                       View<A, 1, Exec>(sums + weight_.size(), channels));
        typename Halo::Gradient after;
        if (halo_) {
            typename Halo::Gradient const d_before(pass.context, saved.before.extents());
            kernels::causal_convolution_backward_before<T>(exec, dy.rows(), weight(), positions(pass), seq,
                                                           d_before.rows());
            after = halo_->backward(d_before, pass.stretches(stretches_), slices(pass));
        }
        Tensor<dual_t<X>, Exec> dx(pass.context, saved.x.extents());
        kernels::causal_convolution_backward_data<T>(exec, dy.rows(), weight(), positions(pass), seq, after.rows(),
                                                     dx.rows());
        saved.x = {};
        saved.before = {};
        return dx;
    }
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        auto* const sums = static_cast<A*>(saved.sums.data());
        kernels::add<A>(pass.context.exec(), View<A, 1, Exec>(sums, weight_.size()), weight_.gradient().array_flat());
        kernels::add<A>(pass.context.exec(), View<A, 1, Exec>(sums + weight_.size(), bias_.size()),
                        bias_.gradient().array_flat());
        saved = {};
    }
    template <class F>
    void for_each_weight(F&& f) {
        f(weight_);
    }
    template <class F>
    void for_each_bias(F&& f) {
        f(bias_);
    }

  private:
    static View<i32 const, 1, Exec> positions(Pass<Exec> const& pass) {
        return pass.map == nullptr ? View<i32 const, 1, Exec>() : pass.map->positions;
    }
    [[nodiscard]] AtSlice<typename Halo::Slices> slices(Pass<Exec> const& pass) const {
        return pass.template at_slice<typename Halo::Slices>(slices_, this);
    }
    [[nodiscard]] View<T, 2, Exec> weight() const {
        return View<T, 2, Exec>(weight_.value().data(), bias_.size(), taps_);
    }

    Parameter<Filter, used_t<Filter, X>, Exec> weight_;
    Parameter<Channel, used_t<Channel, X>, Exec> bias_;
    std::size_t taps_, slices_;
    Stretches stretches_;
    std::optional<Halo> halo_;
};

} // namespace pentad
