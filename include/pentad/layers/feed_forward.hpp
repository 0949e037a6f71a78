// Room: layers. The feed-forward block, its width sharded over tp: SwiGLU as in LLaMA, or GELU.
#pragma once

#include <pentad/kernels/activation.hpp>
#include <pentad/layers/linear.hpp>

#include <string>
#include <utility>

namespace pentad {

/// y = (silu(x gate^T) * (x up^T)) down^T (Shazeer 2020, eq. 6).
struct SwiGlu {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using takes = GatheredStream<T>;
        using Up = ColumnParallel<ffn, hidden, takes, Exec>;
        using Inner = typename Up::gives;
        using Down = RowParallel<hidden, ffn, Inner, Exec>;
        using gives = typename Down::gives;

        struct Saved {
            typename Up::Saved gate_product, up_product;
            typename Down::Saved down_product;
            Tensor<Inner, Exec> gate, up;
        };

        on(Setup<Exec> const& setup, std::string const& name)
            : gate_(setup.context, name + ".gate_proj.weight", {setup.shape.ffn, setup.shape.hidden}),
              up_(setup.context, name + ".up_proj.weight", {setup.shape.ffn, setup.shape.hidden}),
              down_(setup.context, name + ".down_proj.weight", {setup.shape.hidden, setup.shape.ffn}) {}

        Tensor<gives, Exec> forward(Pass<Exec>& pass, Tensor<takes, Exec> x, Saved& saved) const {
            observe::Scope const scope("feed-forward forward", "compute");
            saved.gate = gate_.forward(x, saved.gate_product);
            saved.up = up_.forward(x, saved.up_product);
            Tensor<Inner, Exec> y(pass.context, saved.gate.extents());
            kernels::swiglu_forward<T>(pass.context.exec(), saved.gate.rows(), saved.up.rows(), y.rows());
            return down_.forward(y, saved.down_product);
        }
        Tensor<dual_t<takes>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<gives>, Exec> dy,
                                                  Saved& saved) const {
            observe::Scope const scope("feed-forward backward", "compute");
            auto const d = down_.backward_data(std::move(dy), saved.down_product);
            kernels::swiglu_backward<T>(pass.context.exec(), d.rows(), saved.gate.rows(), saved.up.rows(),
                                        saved.gate.rows(), saved.up.rows());
            Tensor<dual_t<takes>, Exec> dx(pass.context, saved.gate_product.x.extents());
            gate_.backward_data(std::move(saved.gate).template as<dual_t<Inner>>(), saved.gate_product, dx, false);
            up_.backward_data(std::move(saved.up).template as<dual_t<Inner>>(), saved.up_product, dx, true);
            return dx;
        }
        void backward_weight(Pass<Exec>&, Saved& saved) const {
            observe::Scope const scope("feed-forward weights", "compute");
            down_.backward_weight(saved.down_product);
            gate_.backward_weight(saved.gate_product);
            up_.backward_weight(saved.up_product);
            saved = {};
        }
        template <class F>
        void for_each_parameter(F&& f) {
            gate_.for_each_parameter(f);
            up_.for_each_parameter(f);
            down_.for_each_parameter(f);
        }

      private:
        Up gate_, up_;
        Down down_;
    };
};

/// y = gelu(x up^T) down^T, with the exact GELU (Hendrycks and Gimpel 2016, eq. 1).
struct Gelu {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using takes = GatheredStream<T>;
        using Up = ColumnParallel<ffn, hidden, takes, Exec>;
        using Inner = typename Up::gives;
        using Down = RowParallel<hidden, ffn, Inner, Exec>;
        using gives = typename Down::gives;

        struct Saved {
            typename Up::Saved up_product;
            typename Down::Saved down_product;
            Tensor<Inner, Exec> up;
        };

        on(Setup<Exec> const& setup, std::string const& name)
            : up_(setup.context, name + ".up_proj.weight", {setup.shape.ffn, setup.shape.hidden}),
              down_(setup.context, name + ".down_proj.weight", {setup.shape.hidden, setup.shape.ffn}) {}

        Tensor<gives, Exec> forward(Pass<Exec>& pass, Tensor<takes, Exec> x, Saved& saved) const {
            observe::Scope const scope("feed-forward forward", "compute");
            saved.up = up_.forward(x, saved.up_product);
            Tensor<Inner, Exec> y(pass.context, saved.up.extents());
            kernels::gelu_forward<T>(pass.context.exec(), saved.up.rows(), y.rows());
            return down_.forward(y, saved.down_product);
        }
        Tensor<dual_t<takes>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<gives>, Exec> dy,
                                                  Saved& saved) const {
            observe::Scope const scope("feed-forward backward", "compute");
            auto d = down_.backward_data(std::move(dy), saved.down_product);
            kernels::gelu_backward<T>(pass.context.exec(), d.rows(), saved.up.rows(), d.rows());
            saved.up = {};
            return up_.backward_data(std::move(d), saved.up_product);
        }
        void backward_weight(Pass<Exec>&, Saved& saved) const {
            observe::Scope const scope("feed-forward weights", "compute");
            down_.backward_weight(saved.down_product);
            up_.backward_weight(saved.up_product);
            saved = {};
        }
        template <class F>
        void for_each_parameter(F&& f) {
            up_.for_each_parameter(f);
            down_.for_each_parameter(f);
        }

      private:
        Up up_;
        Down down_;
    };
};

} // namespace pentad
