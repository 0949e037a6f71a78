// A layer of SwiGLU experts behind a router: route, dispatch, grouped products, the way back, the weighted
// sum.
#pragma once

#include <pentad/experts/dispatch.hpp>
#include <pentad/experts/router.hpp>
#include <pentad/experts/tokens.hpp>
#include <pentad/kernels/activation.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::experts {

using namespace ml;

/// y[t] = sum over the k choices e of token t of weight[t, e] W2_e (silu(W1_e x[t]) * (W3_e x[t])), as Mixtral (Jiang
/// et al. 2024, section 2.1). Choices for which an expert has no room are left out: without any a token passes by the
/// residual stream alone.
struct Layer {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using input_layout = dealt_stream_t<Stream>;
        using output_layout = input_layout;
        using Row = dispatched_t<input_layout>;
        using Up = Layout<T, Dims<Dim<expert, dynamic, ep>, Dim<ffn, dynamic, etp>, Dim<hidden>>>;
        using Down = Layout<T, Dims<Dim<expert, dynamic, ep>, Dim<hidden>, Dim<ffn, dynamic, etp>>>;
        using RouterType = Router<input_layout, Exec>;
        using DispatchType = Dispatch<T, Exec>;
        using Shared = GatedMlp<Blocking>::template on<input_layout, Exec>; ///< the experts that every token meets

        struct Saved {
            typename RouterType::Saved router;
            DispatchType dispatch;
            RowBuffer<T, Exec> x, gate, up, inner; ///< of the experts here
            RowBuffer<T, Exec> doutput;
            typename Shared::Saved shared;
        };

        on(LayerSetup<Exec> const& setup, model::Experts const& part, std::string const& name)
            : router_(setup, part, (require_view(setup.context, name), name + ".gate")),
              gate_(setup.context, name + ".experts.{}.w1.weight", {part.count, part.width, setup.hidden}),
              up_(setup.context, name + ".experts.{}.w3.weight", {part.count, part.width, setup.hidden}),
              down_(setup.context, name + ".experts.{}.w2.weight", {part.count, setup.hidden, part.width}) {
            for_each_expert_weight([](auto& weight) { weight.set_matrix_dimensions({.stacked = 1, .rows = 1}); });
            (void)DispatchType::goes_by_node(setup.context, router_.slots()); // makes communicators
            if (part.shared > 0)
                shared_.emplace(setup, model::GatedMlp{part.shared * part.width}, name + ".shared_experts");
        }

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("experts forward", "compute");
            auto const& context = pass.context;
            auto const& exec = context.exec();
            router_.forward(pass, x, saved.router);
            auto const weight = saved.router.weight.rows();
            saved.dispatch.route(context, saved.router.choice.rows(), weight, gate_.value().extents()[0],
                                 router_.routed(pass, x.local()[1]));
            saved.x = saved.dispatch.forward(context, x.rows());

            std::size_t const rows = saved.x.count, width = gate_.value().local()[1];
            saved.gate = RowBuffer<T, Exec>(context, rows, width);
            saved.up = RowBuffer<T, Exec>(context, rows, width);
            RowBuffer<T, Exec> out(context, rows, saved.x.columns);
            auto const offsets = saved.dispatch.offsets();
            constexpr auto transposed = kernels::Transpose::yes;
            kernels::grouped_gemm(exec, transposed, 1.0, saved.x.view(), gate_.value().view(), offsets, 0.0,
                                  saved.gate.view());
            kernels::grouped_gemm(exec, transposed, 1.0, saved.x.view(), up_.value().view(), offsets, 0.0,
                                  saved.up.view());
            activate(context, saved);
            kernels::grouped_gemm(exec, transposed, 1.0, saved.inner.view(), down_.value().view(), offsets, 0.0,
                                  out.view());

            Tensor<output_layout, Exec> y(context, x.extents());
            saved.dispatch.combine(context, std::move(out), weight, y.rows());
            if (recomputed_.contains(model::Piece::activations)) saved.inner = {};
            if (recomputed_.contains(model::Piece::rows)) saved.x = {};
            if (drops_input(recomputed_)) RouterType::drop_input(saved.router);
            if (shared_) {
                auto const more = redistribute<output_layout>(
                    shared_->forward(pass, redistribute<typename Shared::input_layout>(std::move(x)), saved.shared));
                kernels::add<T>(exec, more.flat(), y.flat());
            }
            return y;
        }

        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("experts backward", "compute");
            auto const& context = pass.context;
            auto const& exec = context.exec();
            bool const dispatches = recomputed_.contains(model::Piece::rows);
            bool const lacks_input = shared_ && drops_input(recomputed_);
            if (dispatches) saved.x = saved.dispatch.forward(context, saved.router.x.rows());
            if (lacks_input)
                shared_->restore_input(redistribute<typename Shared::input_layout>(saved.router.x), saved.shared);
            auto const& weight = saved.router.weight;
            Tensor<dual_t<typename RouterType::ChoiceWeight>, Exec> dweight(context, weight.extents());
            saved.doutput = saved.dispatch.combine_backward(context, dy.rows(), weight.rows(), dweight.rows());

            if (recomputed_.contains(model::Piece::activations)) activate(context, saved);
            auto const offsets = saved.dispatch.offsets();
            constexpr auto plain = kernels::Transpose::no;
            RowBuffer<T, Exec> dinner(context, saved.inner.count, saved.inner.columns);
            kernels::grouped_gemm(exec, plain, 1.0, saved.doutput.view(), down_.value().view(), offsets, 0.0,
                                  dinner.view());
            kernels::swiglu_backward<T>(exec, dinner.view(), saved.gate.view(), saved.up.view(), saved.gate.view(),
                                        saved.up.view());
            RowBuffer<T, Exec> drows(context, saved.x.count, saved.x.columns);
            kernels::grouped_gemm(exec, plain, 1.0, saved.gate.view(), gate_.value().view(), offsets, 0.0,
                                  drows.view());
            kernels::grouped_gemm(exec, plain, 1.0, saved.up.view(), up_.value().view(), offsets, 1.0, drows.view());

            Tensor<dual_t<input_layout>, Exec> through_experts(context, dy.extents());
            saved.dispatch.backward(context, std::move(drows), through_experts.rows());
            if (shared_) {
                auto const more = redistribute<dual_t<input_layout>>(shared_->backward_data(
                    pass, redistribute<dual_t<typename Shared::output_layout>>(std::move(dy)), saved.shared));
                kernels::add<T>(exec, more.flat(), through_experts.flat());
            }
            auto dx = router_.backward_data(pass, dweight, saved.router);
            kernels::add<T>(exec, through_experts.flat(), dx.flat());
            return dx;
        }

        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("experts weights", "compute");
            auto const& exec = pass.context.exec();
            auto const offsets = saved.dispatch.offsets();
            kernels::grouped_gemm_weight(exec, 1.0, saved.doutput.view(), saved.inner.view(), offsets, 1.0,
                                         down_.gradient().array());
            kernels::grouped_gemm_weight(exec, 1.0, saved.gate.view(), saved.x.view(), offsets, 1.0,
                                         gate_.gradient().array());
            kernels::grouped_gemm_weight(exec, 1.0, saved.up.view(), saved.x.view(), offsets, 1.0,
                                         up_.gradient().array());
            if (shared_) shared_->backward_weight(pass, saved.shared);
            router_.backward_weight(pass, saved.router);
            saved = {};
        }

        [[nodiscard]] RouterLoad take_router_load() const {
            auto load = router_.take_load();
            auto const& ranks = gate_.context().communicators().along(AxisNames(ep::name));
            load.ranks = static_cast<std::size_t>(ranks.size());
            load.nodes = static_cast<std::size_t>(ranks.nodes().count());
            return load;
        }
        template <class F>
        void for_each_parameter(F&& f) {
            router_.for_each_parameter(f);
            for_each_expert_weight(f);
            if (shared_) shared_->for_each_parameter(f);
        }
        [[nodiscard]] static model::PieceSet pieces() {
            return {model::Piece::inputs, model::Piece::norms, model::Piece::activations, model::Piece::rows};
        }
        void recompute(model::PieceSet pieces) {
            recomputed_ = pieces;
            if (shared_) shared_->recompute(pieces & Shared::pieces());
        }
        static void restore_input(Tensor<input_layout, Exec> x, Saved& saved) { saved.router.x = std::move(x); }

      private:
        template <class F>
        void for_each_expert_weight(F&& f) {
            f(gate_);
            f(up_);
            f(down_);
        }
        static void require_view(Context<Exec> const& context, std::string const& name) {
            for (auto const& axis : context.communicators().mesh())
                if (axis.name == ep::name) return;
            throw std::invalid_argument(name +
                                        " has experts, and the mesh no axis ep: make it with model::with_experts()");
        }
        void activate(Context<Exec> const& context, Saved& saved) const {
            saved.inner = RowBuffer<T, Exec>(context, saved.gate.count, saved.gate.columns);
            kernels::swiglu_forward<T>(context.exec(), saved.gate.view(), saved.up.view(), saved.inner.view());
        }

        // One expert's products, as the algebra sees them: the layouts without the expert dimension must fit.
        using OneRow = expert_rows_t<input_layout>;
        using OneUp = Layout<T, Dims<Dim<ffn, dynamic, etp>, Dim<hidden>>>;
        using OneDown = Layout<T, Dims<Dim<hidden>, Dim<ffn, dynamic, etp>>>;
        static_assert((detail::require_dealt<input_layout>(), true));
        static_assert((require_multipliable<OneRow, OneUp, 1>(), true));
        static_assert((require_multipliable<product_t<OneRow, OneUp, 1>, OneDown, 1>(), true));

        RouterType router_;
        std::optional<Shared> shared_;
        model::PieceSet recomputed_;
        Parameter<Up, used_t<Up, Row>, Exec> gate_, up_;
        Parameter<Down, used_t<Down, Row>, Exec> down_;
    };
};

} // namespace pentad::experts
