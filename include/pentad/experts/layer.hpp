// A layer of SwiGLU experts behind a router: route, dispatch, grouped products, the way back, the weighted
// sum. While some rows travel, others are computed with, and so are the experts that every token meets.
#pragma once

#include <pentad/comm/turns.hpp>
#include <pentad/experts/dispatch.hpp>
#include <pentad/experts/router.hpp>
#include <pentad/experts/tokens.hpp>
#include <pentad/kernels/activation.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/expert_placement.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/overlap.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::experts {

using namespace ml;

/// y[t] = sum over the k choices e of token t of weight[t, e] W2_e (silu(W1_e x[t]) * (W3_e x[t])), as Mixtral (Jiang
/// et al. 2024, section 2.1). Choices for which an expert has no room are left out: without any a token passes by the
/// residual stream alone.
/// @tparam Communication `Overlap<Chunks>`: where ep crosses a network, rows come and go in up to so many parts, beside
/// the products of others. No bit changes, but where a rank has one expert: its products then have fewer rows at a time
template <class Communication = Blocking>
struct Layer {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using input_layout = dealt_stream_t<Stream>;
        using output_layout = input_layout;
        static constexpr bool is_tokenwise = true;
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
            RowBuffer<T, Exec> output;             ///< what they gave; then its gradient
            typename Shared::Saved shared;
        };

        on(LayerSetup<Exec> const& setup, model::Experts const& part, std::string const& name)
            : rows_element_(setup.rows), most_parts_(static_cast<std::size_t>(setup.block.row_parts)),
              router_(setup, part, (require_view(setup.context, name), name + ".gate")),
              gate_(setup.context, name + ".experts.{}.w1.weight", {part.count, part.width, setup.hidden}),
              up_(setup.context, name + ".experts.{}.w3.weight", {part.count, part.width, setup.hidden}),
              down_(setup.context, name + ".experts.{}.w2.weight", {part.count, setup.hidden, part.width}),
              placement_(std::make_unique<ExpertPlacement<Exec>>(setup.context, part.count)) {
            for_each_expert_weight([&](auto& weight) {
                weight.set_matrix_dimensions({.stacked = 1, .rows = 1});
                weight.set_stack_order(&placement_->order());
            });
            (void)DispatchType::goes_by_node(setup.context, router_.slots()); // makes communicators
            if (part.shared > 0)
                shared_.emplace(setup, model::GatedMlp{part.shared * part.width}, name + ".shared_experts");
        }

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("experts forward", "compute");
            auto const& context = pass.context;
            auto const& exec = context.exec();
            route(pass, x, saved);
            auto& dispatch = saved.dispatch;
            auto const weight = View<A const, 2, Exec>(saved.router.weight.rows());
            auto coming = dispatch.start(context, x.rows());
            Tensor<output_layout, Exec> y(context, x.extents()), more;
            if (shared_)
                more = redistribute<output_layout>(
                    shared_->forward(pass, redistribute<typename Shared::input_layout>(x), saved.shared));

            std::size_t const rows = dispatch.rows(), width = gate_.value().local()[1];
            for (auto* const buffer : {&saved.gate, &saved.up, &saved.inner}) *buffer = {context, rows, width};
            for (auto* const buffer : {&saved.x, &saved.output}) *buffer = {context, rows, hidden_size()};
            typename DispatchType::Leaving leaving(y.rows());
            for (std::size_t i = 0; i < dispatch.parts(); ++i) {
                auto const part = dispatch.part(i);
                auto const product = [&](auto const& in, auto const& weights, auto const& out) {
                    kernels::grouped_gemm(exec, kernels::Transpose::yes, 1.0, part.of(in),
                                          part.of(weights.value().view()), part.offsets, 0.0, part.of(out));
                };
                dispatch.take(context, coming, part, part.of(saved.x));
                product(saved.x, gate_, saved.gate);
                product(saved.x, up_, saved.up);
                kernels::swiglu_forward<T>(exec, part.of(saved.gate), part.of(saved.up), part.of(saved.inner));
                product(saved.inner, down_, saved.output);
                dispatch.combine(context, part, saved.output.view(), weight, leaving);
            }
            coming = {};
            if (recomputed_.contains(model::Piece::activations)) saved.inner = {};
            if (recomputed_.contains(model::Piece::rows)) saved.x = {};
            dispatch.finish(context, leaving);
            if (drops_input(recomputed_)) RouterType::drop_input(saved.router);
            if (shared_) kernels::add<T>(exec, more.flat(), y.flat());
            return y;
        }

        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("experts backward", "compute");
            auto const& context = pass.context;
            auto const& exec = context.exec();
            if (shared_ && drops_input(recomputed_))
                shared_->restore_input(redistribute<typename Shared::input_layout>(saved.router.x), saved.shared);
            auto& dispatch = saved.dispatch;
            auto const weight = View<A const, 2, Exec>(saved.router.weight.rows());
            Tensor<dual_t<typename RouterType::ChoiceWeight>, Exec> dweight(context, saved.router.weight.extents());
            Tensor<dual_t<input_layout>, Exec> through_experts(context, dy.extents()), more;
            auto coming = dispatch.start_backward(context, dy.rows(), dweight.rows());
            bool const restores_rows = recomputed_.contains(model::Piece::rows);
            typename DispatchType::Coming again;
            if (restores_rows) {
                again = dispatch.start(context, saved.router.x.rows());
                saved.x = {context, dispatch.rows(), hidden_size()};
            }
            if (shared_)
                more = redistribute<dual_t<input_layout>>(shared_->backward_data(
                    pass, redistribute<dual_t<typename Shared::output_layout>>(dy), saved.shared));

            bool const restores_inner = recomputed_.contains(model::Piece::activations);
            if (restores_inner) saved.inner = {context, saved.gate.count, saved.gate.columns};
            RowBuffer<T, Exec> drows;
            typename DispatchType::Leaving leaving(through_experts.rows());
            for (std::size_t i = 0; i < dispatch.parts(); ++i) {
                auto const part = dispatch.part(i);
                auto const product = [&](auto const& in, auto const& weights, double beta, auto const& out) {
                    kernels::grouped_gemm(exec, kernels::Transpose::no, 1.0, in, part.of(weights.value().view()),
                                          part.offsets, beta, out);
                };
                auto const gate = part.of(saved.gate), up = part.of(saved.up), dout = part.of(saved.output);
                if (restores_rows) dispatch.take(context, again, part, part.of(saved.x));
                if (restores_inner) kernels::swiglu_forward<T>(exec, gate, up, part.of(saved.inner));
                dispatch.take_gradients(context, coming, part, weight, dout, dweight.rows());
                if (i + 1 == dispatch.parts()) {
                    comm::Turns::Hold const holds_turn(comm::turns());
                    dispatch.return_weight_gradients(context, coming);
                }
                RowBuffer<T, Exec> dinner(context, gate.extent(0), gate.extent(1));
                product(dout, down_, 0.0, dinner.view());
                kernels::swiglu_backward<T>(exec, dinner.view(), gate, up, gate, up);
                dinner = {};
                if (i == 0) drows = {context, dispatch.rows(), hidden_size()};
                product(gate, gate_, 0.0, part.of(drows));
                product(up, up_, 1.0, part.of(drows));
                dispatch.give_back(context, part, drows.view(), leaving);
            }
            {
                comm::Turns::Hold const holds_turn(comm::turns());
                dispatch.finish_backward(context, coming, dweight.rows());
            }
            dispatch.finish(context, leaving);
            if (shared_) kernels::add<T>(exec, more.flat(), through_experts.flat());
            auto dx = router_.backward_data(pass, dweight, saved.router);
            kernels::add<T>(exec, through_experts.flat(), dx.flat());
            return dx;
        }

        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("experts weights", "compute");
            auto const& exec = pass.context.exec();
            auto const offsets = saved.dispatch.offsets();
            kernels::grouped_gemm_weight(exec, 1.0, saved.output.view(), saved.inner.view(), offsets, 1.0,
                                         down_.gradient().array());
            kernels::grouped_gemm_weight(exec, 1.0, saved.gate.view(), saved.x.view(), offsets, 1.0,
                                         gate_.gradient().array());
            kernels::grouped_gemm_weight(exec, 1.0, saved.up.view(), saved.x.view(), offsets, 1.0,
                                         up_.gradient().array());
            if (shared_) shared_->backward_weight(pass, saved.shared);
            router_.backward_weight(pass, saved.router);
            saved = {};
        }

        /// Where experts choose tokens, these are chosen among others.
        [[nodiscard]] bool continues_sequences() const { return router_.is_tokenwise(); }
        [[nodiscard]] ExpertPlacement<Exec>* expert_placement() const { return placement_.get(); }
        [[nodiscard]] RouterLoad router_load() const {
            auto load = router_.load();
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
        /// Chooses experts and tells their ranks.
        void route(Pass<Exec>& pass, Tensor<input_layout, Exec> const& x, Saved& saved) const {
            comm::Turns::Hold const holds_turn(comm::turns()); // short exchanges: turns are for those of rows
            router_.forward(pass, x, saved.router);
            RowBuffer<i32, Exec> places; // of the chosen experts
            auto chosen = View<i32 const, 2, Exec>(saved.router.choice.rows());
            if (!placement_->order().is_by_number()) {
                places = composed<Exec>(pass.context, chosen, 1, placement_->places());
                chosen = places.view();
            }
            saved.dispatch.route(pass.context, chosen, View<A const, 2, Exec>(saved.router.weight.rows()),
                                 gate_.value().extents()[0], router_.routed(pass, x.local()[1]),
                                 {.element = rows_element_, .parts = parts_of(x)});
        }
        /// Travel::parts.
        template <class L>
        std::size_t parts_of(Tensor<L, Exec> const& tokens) const {
            auto const& comm = gate_.context().communicators().along(AxisNames(ep::name));
            if (Communication::chunks == 0 || !comm.crosses_network()) return 0;
            return std::min(most_parts_, pentad::detail::pieces_of<Communication>(tokens.flat()));
        }
        [[nodiscard]] std::size_t hidden_size() const { return gate_.value().local()[2]; }

        // One expert's products, as the algebra sees them: the layouts without the expert dimension must fit.
        using OneRow = expert_rows_t<input_layout>;
        using OneUp = Layout<T, Dims<Dim<ffn, dynamic, etp>, Dim<hidden>>>;
        using OneDown = Layout<T, Dims<Dim<hidden>, Dim<ffn, dynamic, etp>>>;
        static_assert((detail::require_dealt<input_layout>(), true));
        static_assert((require_multipliable<OneRow, OneUp, 1>(), true));
        static_assert((require_multipliable<product_t<OneRow, OneUp, 1>, OneDown, 1>(), true));

        Compact rows_element_;
        std::size_t most_parts_; ///< BlockStrategy::row_parts
        RouterType router_;
        std::optional<Shared> shared_;
        model::PieceSet recomputed_;
        Parameter<Up, used_t<Up, Row>, Exec> gate_, up_;
        Parameter<Down, used_t<Down, Row>, Exec> down_;
        std::unique_ptr<ExpertPlacement<Exec>> placement_; ///< to which the weights point
    };
};

} // namespace pentad::experts
