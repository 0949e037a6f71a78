// The product of two streams that stand side by side with a weight: what a module of multi-token prediction begins
// with.
#pragma once

#include <pentad/kernels/gemm.hpp>
#include <pentad/kernels/latent_heads.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>

#include <string>
#include <type_traits>
#include <utility>

namespace pentad {

/// y[r] = M [a[r]; b[r]] for two values of a stream, M `[hidden, 2 hidden]` (DeepSeek-V3, arXiv 2412.19437, eq. 21).
/// The weight is whole on every rank.
struct JoinedProjection {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using Joined = with_last_dim_t<Stream, Dim<ml::joined>>;
        using Weight = Layout<T, Dims<Dim<ml::hidden>, Dim<ml::joined>>>;
        static_assert(std::is_same_v<product_t<Joined, Weight, 1>, Stream>);

        struct Saved {
            Tensor<Joined, Exec> joined;
            Tensor<dual_t<Stream>, Exec> dy; ///< until the weight's gradient
        };

        on(LayerSetup<Exec> const& setup, std::string const& name)
            : weight_(setup.context, name + ".weight", {setup.hidden, 2 * setup.hidden}) {
            weight_.set_matrix_dimensions({.rows = 1});
        }

        Tensor<Stream, Exec> forward(Pass<Exec>& pass, Tensor<Stream, Exec> const& a, Tensor<Stream, Exec> const& b,
                                     Saved& saved) const {
            auto const& exec = pass.context.exec();
            auto extents = b.extents();
            extents[2] *= 2;
            saved.joined = Tensor<Joined, Exec>(pass.context, extents);
            kernels::join_columns<T>(exec, a.rows(), b.rows(), saved.joined.rows());
            Tensor<Stream, Exec> y(pass.context, b.extents());
            kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::yes, 1.0, saved.joined.rows(),
                          weight_.value().view(), 0.0, y.rows());
            return y;
        }
        /// The gradients of a and b.
        std::pair<Tensor<dual_t<Stream>, Exec>, Tensor<dual_t<Stream>, Exec>>
        backward_data(Pass<Exec>& pass, Tensor<dual_t<Stream>, Exec> dy, Saved& saved) const {
            auto const& exec = pass.context.exec();
            Tensor<dual_t<Joined>, Exec> const djoined(pass.context, saved.joined.extents());
            kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::no, 1.0, dy.rows(), weight_.value().view(),
                          0.0, djoined.rows());
            Tensor<dual_t<Stream>, Exec> da(pass.context, dy.extents()), db(pass.context, dy.extents());
            kernels::split_columns<T>(exec, djoined.rows(), da.rows(), db.rows());
            saved.dy = std::move(dy);
            return {std::move(da), std::move(db)};
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            kernels::gemm(pass.context.exec(), kernels::Transpose::yes, kernels::Transpose::no, 1.0, saved.dy.rows(),
                          saved.joined.rows(), 1.0, weight_.gradient().array());
            saved = {};
        }
        template <class F>
        void for_each_parameter(F&& f) {
            f(weight_);
        }

      private:
        Parameter<Weight, used_t<Weight, Joined>, Exec> weight_;
    };
};

} // namespace pentad
