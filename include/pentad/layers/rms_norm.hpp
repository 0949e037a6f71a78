// RMSNorm over the last dimension of a stream, whatever its layout; under sequence parallelism its weight is used by
// different ranks of tp for different tokens, and its gradient is partial over tp, because the layout says so. Where
// ranks share that dimension their sums are reduced.
#pragma once

#include <pentad/kernels/norm.hpp>
#include <pentad/kernels/sharded_norm.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layers/shared_rows.hpp>

#include <string>
#include <utility>

namespace pentad {

/// y = x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich 2019, eq. 4).
struct RmsNorm {
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
            memory::Buffer<typename Exec::memory_space> rstd;
        };

        on(LayerSetup<Exec> const& setup, std::string const& name) : on(setup, name, setup.hidden) {}
        /// @param width of what is normalised: the stream's last dimension
        on(LayerSetup<Exec> const& setup, std::string const& name, std::size_t width)
            : on(setup, name, width, setup.norm_epsilon) {}
        on(LayerSetup<Exec> const& setup, std::string const& name, std::size_t width, double epsilon)
            : weight_(setup.context, name + ".weight", {width}, {.values = InitialValues::ones}), epsilon_(epsilon) {}

        Tensor<Stream, Exec> forward(Pass<Exec>& pass, Tensor<Stream, Exec> x, Saved& saved) const {
            Tensor<Stream, Exec> y(pass.context, x.extents());
            saved.rstd = pass.context.take(x.rows().extent(0) * sizeof(A));
            auto const& exec = pass.context.exec();
            auto const epsilon = static_cast<A>(epsilon_);
            if constexpr (shares_rows<Stream>) {
                auto const squares = sums_of_rows(
                    pass.context, x, 1, [&](auto const& sums) { kernels::row_squares<T>(exec, x.rows(), sums); });
                kernels::sharded_rms_norm_forward<T>(exec, x.rows(), weight_.value().flat(), squares.rows(),
                                                     x.extents().back(), epsilon, y.rows(), rstd(saved, x));
            } else {
                kernels::rms_norm_forward<T>(exec, x.rows(), weight_.value().flat(), epsilon, y.rows(), rstd(saved, x));
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
            if constexpr (shares_rows<Stream>) {
                auto const dots = sums_of_rows(pass.context, x, 1, [&](auto const& sums) {
                    kernels::rms_norm_dots<T>(exec, dy.rows(), x.rows(), weight_.value().flat(), sums);
                });
                kernels::sharded_rms_norm_backward_data<T>(exec, dy.rows(), x.rows(), weight_.value().flat(),
                                                           rstd(saved, x), dots.rows(), x.extents().back(), dx.rows());
            } else {
                kernels::rms_norm_backward_data<T>(exec, dy.array_rows(), x.rows(), weight_.value().flat(),
                                                   rstd(saved, x), dx.array_rows(), false);
            }
            saved.dy = std::move(dy);
            return dx;
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            kernels::rms_norm_backward_weight<T>(pass.context.exec(), saved.dy.array_rows(), saved.x.rows(),
                                                 rstd(saved, saved.x), weight_.gradient().array_flat());
            saved = {};
        }
        template <class F>
        void for_each_parameter(F&& f) {
            f(weight_);
        }

      private:
        static View<A, 1, Exec> rstd(Saved const& saved, Tensor<Stream, Exec> const& x) {
            return View<A, 1, Exec>(static_cast<A*>(saved.rstd.data()), x.rows().extent(0));
        }

        Parameter<Weight, used_t<Weight, Stream>, Exec> weight_;
        double epsilon_;
    };
};

} // namespace pentad
