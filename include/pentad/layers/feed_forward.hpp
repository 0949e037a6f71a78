// The MLP of a block, its width sharded over tp: gated (SwiGLU, as in LLaMA) or plain (GELU).
#pragma once

#include <pentad/kernels/activation.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/tensor_parallel.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/recomputation.hpp>

#include <string>
#include <tuple>
#include <utility>

namespace pentad {

/// y = (silu(x gate^T) * (x up^T)) down^T (Shazeer 2020, eq. 6).
template <class Communication = Blocking>
struct GatedMlp {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using Parallel = TensorParallel<Stream, Communication, Exec>;
        using input_layout = typename Parallel::input_layout;
        using output_layout = typename Parallel::output_layout;
        static constexpr bool is_tokenwise = true;
        using Width = Dim<ml::ffn, dynamic, typename Parallel::columns>;
        using Up = typename Parallel::template InputMap<Width>;
        using Inner = typename Up::output_layout;
        using Input = typename Parallel::template Input<Up, Up>;
        using Output = typename Parallel::template Output<Inner, Width>;

        struct Saved {
            typename Input::Saved input;
            typename Output::Saved output;
            Tensor<Inner, Exec> gate, up;
        };

        on(LayerSetup<Exec> const& setup, model::GatedMlp const& part, std::string const& name)
            : input_(Up(setup.context, name + ".gate_proj", {part.width, setup.hidden}),
                     Up(setup.context, name + ".up_proj", {part.width, setup.hidden})),
              output_(typename Output::map_type(setup.context, name + ".down_proj", {setup.hidden, part.width})) {}

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("feed-forward forward", "compute");
            std::tie(saved.gate, saved.up) = input_.forward(std::move(x), saved.input);
            auto z = output_.forward(activated(pass, saved), saved.output);
            if (recomputed_.contains(model::Piece::activations)) saved.output.x = {};
            if (drops_input(recomputed_)) Input::drop_input(saved.input);
            return z;
        }
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("feed-forward backward", "compute");
            if (recomputed_.contains(model::Piece::activations)) saved.output.x = activated(pass, saved);
            auto const d = output_.backward_data(std::move(dy), saved.output);
            kernels::swiglu_backward<T>(pass.context.exec(), d.rows(), saved.gate.rows(), saved.up.rows(),
                                        saved.gate.rows(), saved.up.rows());
            return input_.backward_data(std::move(saved.gate).template reinterpret_as<dual_t<Inner>>(),
                                        std::move(saved.up).template reinterpret_as<dual_t<Inner>>(), saved.input);
        }
        void backward_weight(Pass<Exec>&, Saved& saved) const {
            observe::Scope const scope("feed-forward weights", "compute");
            output_.backward_weight(saved.output);
            input_.backward_weight(saved.input);
            saved = {};
        }
        template <class F>
        void for_each_parameter(F&& f) {
            input_.for_each_parameter(f);
            output_.for_each_parameter(f);
        }
        [[nodiscard]] static model::PieceSet pieces() {
            return {model::Piece::inputs, model::Piece::norms, model::Piece::activations};
        }
        void recompute(model::PieceSet pieces) { recomputed_ = pieces; }
        static void restore_input(Tensor<input_layout, Exec> x, Saved& saved) {
            Input::restore_input(std::move(x), saved.input);
        }

      private:
        static Tensor<Inner, Exec> activated(Pass<Exec>& pass, Saved const& saved) {
            Tensor<Inner, Exec> y(pass.context, saved.gate.extents());
            kernels::swiglu_forward<T>(pass.context.exec(), saved.gate.rows(), saved.up.rows(), y.rows());
            return y;
        }

        Input input_;
        Output output_;
        model::PieceSet recomputed_;
    };
};

/// y = gelu(x up^T) down^T, with the exact GELU (Hendrycks and Gimpel 2016, eq. 1).
template <class Communication = Blocking>
struct PlainMlp {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using Parallel = TensorParallel<Stream, Communication, Exec>;
        using input_layout = typename Parallel::input_layout;
        using output_layout = typename Parallel::output_layout;
        static constexpr bool is_tokenwise = true;
        using Width = Dim<ml::ffn, dynamic, typename Parallel::columns>;
        using Up = typename Parallel::template InputMap<Width>;
        using Inner = typename Up::output_layout;
        using Input = typename Parallel::template Input<Up>;
        using Output = typename Parallel::template Output<Inner, Width>;

        struct Saved {
            typename Input::Saved input;
            typename Output::Saved output;
            Tensor<Inner, Exec> up;
        };

        on(LayerSetup<Exec> const& setup, model::PlainMlp const& part, std::string const& name)
            : input_(Up(setup.context, name + ".up_proj", {part.width, setup.hidden}, part.has_bias)),
              output_(typename Output::map_type(setup.context, name + ".down_proj", {setup.hidden, part.width})) {}

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("feed-forward forward", "compute");
            std::tie(saved.up) = input_.forward(std::move(x), saved.input);
            auto z = output_.forward(activated(pass, saved), saved.output);
            if (recomputed_.contains(model::Piece::activations)) saved.output.x = {};
            if (drops_input(recomputed_)) Input::drop_input(saved.input);
            return z;
        }
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("feed-forward backward", "compute");
            if (recomputed_.contains(model::Piece::activations)) saved.output.x = activated(pass, saved);
            auto d = output_.backward_data(std::move(dy), saved.output);
            kernels::gelu_backward<T>(pass.context.exec(), d.rows(), saved.up.rows(), d.rows());
            saved.up = {};
            return input_.backward_data(std::move(d), saved.input);
        }
        void backward_weight(Pass<Exec>&, Saved& saved) const {
            observe::Scope const scope("feed-forward weights", "compute");
            output_.backward_weight(saved.output);
            input_.backward_weight(saved.input);
            saved = {};
        }
        template <class F>
        void for_each_parameter(F&& f) {
            input_.for_each_parameter(f);
            output_.for_each_parameter(f);
        }
        [[nodiscard]] static model::PieceSet pieces() {
            return {model::Piece::inputs, model::Piece::norms, model::Piece::activations};
        }
        void recompute(model::PieceSet pieces) { recomputed_ = pieces; }
        static void restore_input(Tensor<input_layout, Exec> x, Saved& saved) {
            Input::restore_input(std::move(x), saved.input);
        }

      private:
        static Tensor<Inner, Exec> activated(Pass<Exec>& pass, Saved const& saved) {
            Tensor<Inner, Exec> y(pass.context, saved.up.extents());
            kernels::gelu_forward<T>(pass.context.exec(), saved.up.rows(), y.rows());
            return y;
        }

        Input input_;
        Output output_;
        model::PieceSet recomputed_;
    };
};

} // namespace pentad
