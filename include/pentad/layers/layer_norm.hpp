// LayerNorm over the last dimension of a stream, whatever its layout, as rms_norm.hpp is.
#pragma once

#include <pentad/kernels/layer_norm.hpp>
#include <pentad/kernels/sharded_norm.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layers/shared_rows.hpp>

#include <string>
#include <utility>

namespace pentad {

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias (Ba et al. 2016, eq. 3 and 4).
struct LayerNorm {
    template <class Stream, class Exec>
    class on {
      public:
        using input_layout = Stream;
        using output_layout = Stream;
        static constexpr bool is_tokenwise = true;
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using Weight = last_dimension_t<Stream>;

        struct Saved {
            Tensor<Stream, Exec> x;
            Tensor<dual_t<Stream>, Exec> dy;
            memory::Buffer<typename Exec::memory_space> moments;
        };

        on(LayerSetup<Exec> const& setup, std::string const& name)
            : weight_(setup.context, name + ".weight", {setup.hidden}, {.values = InitialValues::ones}),
              bias_(setup.context, name + ".bias", {setup.hidden}, {.deviation = 0}), epsilon_(setup.norm_epsilon) {}

        Tensor<Stream, Exec> forward(Pass<Exec>& pass, Tensor<Stream, Exec> x, Saved& saved) const {
            Tensor<Stream, Exec> y(pass.context, x.extents());
            saved.moments = pass.context.take(2 * x.rows().extent(0) * sizeof(A));
            auto const& exec = pass.context.exec();
            auto const epsilon = static_cast<A>(epsilon_);
            auto const weight = weight_.value().flat(), bias = bias_.value().flat();
            if constexpr (shares_rows<Stream>) {
                std::size_t const width = x.extents().back();
                auto const sums = sums_of_rows(pass.context, x, 1,
                                               [&](auto const& own) { kernels::row_sums<T>(exec, x.rows(), own); });
                auto const squares = sums_of_rows(pass.context, x, 1, [&](auto const& own) {
                    kernels::centred_squares<T>(exec, x.rows(), sums.rows(), width, own);
                });
                kernels::sharded_layer_norm_forward<T>(exec, x.rows(), weight, bias, sums.rows(), squares.rows(), width,
                                                       epsilon, y.rows(), moments(saved, x));
            } else {
                kernels::layer_norm_forward<T>(exec, x.rows(), weight, bias, epsilon, y.rows(), moments(saved, x));
            }
            saved.x = std::move(x);
            return y;
        }
        Tensor<Stream, Exec> output_again(Pass<Exec>& pass, Saved& saved) const {
            return forward(pass, saved.x, saved);
        }
        Tensor<dual_t<Stream>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<Stream>, Exec> dy,
                                                   Saved& saved) const {
            Tensor<dual_t<Stream>, Exec> dx(pass.context, dy.extents());
            auto const& exec = pass.context.exec();
            auto const& x = saved.x;
            auto const weight = weight_.value().flat();
            if constexpr (shares_rows<Stream>) {
                auto const dots = sums_of_rows(pass.context, x, 2, [&](auto const& own) {
                    kernels::layer_norm_dots<T>(exec, dy.rows(), x.rows(), weight, moments(saved, x), own);
                });
                kernels::sharded_layer_norm_backward_data<T>(exec, dy.rows(), x.rows(), weight, moments(saved, x),
                                                             dots.rows(), x.extents().back(), dx.rows());
            } else {
                kernels::layer_norm_backward_data<T>(exec, dy.rows(), x.rows(), weight, moments(saved, x), dx.rows());
            }
            saved.dy = std::move(dy);
            return dx;
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            kernels::layer_norm_backward_weight<T>(pass.context.exec(), saved.dy.rows(), saved.x.rows(),
                                                   moments(saved, saved.x), weight_.gradient().array_flat(),
                                                   bias_.gradient().array_flat());
            saved = {};
        }
        template <class F>
        void for_each_parameter(F&& f) {
            f(weight_);
            f(bias_);
        }

      private:
        static View<A, 2, Exec> moments(Saved const& saved, Tensor<Stream, Exec> const& x) {
            return View<A, 2, Exec>(static_cast<A*>(saved.moments.data()), x.rows().extent(0), 2);
        }

        Parameter<Weight, used_t<Weight, Stream>, Exec> weight_, bias_;
        double epsilon_;
    };
};

} // namespace pentad
