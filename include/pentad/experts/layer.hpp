// A layer of SwiGLU experts behind a router: route, dispatch, grouped products, the way back, the weighted
// sum. While rows of some tokens travel, others are computed with, and the experts that every token meets.
#pragma once

#include <pentad/comm/turns.hpp>
#include <pentad/experts/dispatch.hpp>
#include <pentad/experts/router.hpp>
#include <pentad/experts/tokens.hpp>
#include <pentad/kernels/activation.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/overlap.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::experts {

using namespace ml;

/// y[t] = sum over the k choices e of token t of weight[t, e] W2_e (silu(W1_e x[t]) * (W3_e x[t])), as Mixtral (Jiang
/// et al. 2024, section 2.1). Choices for which an expert has no room are left out: without any a token passes by the
/// residual stream alone.
/// @tparam Communication `Overlap<Chunks>`: where ep crosses a network, the tokens of a rank are dispatched in as many
/// chunks, each of which is computed with while others are on their way
template <class Communication = Blocking>
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

        /// Of some of the tokens.
        struct Chunk {
            RowRange tokens{};
            DispatchType dispatch;
            RowBuffer<T, Exec> x, gate, up, inner; ///< of the experts here
            RowBuffer<T, Exec> doutput;
        };
        struct Saved {
            typename RouterType::Saved router;
            std::array<Chunk, std::max<std::size_t>(Communication::chunks, 1)> chunks;
            std::size_t chunk_count = 0;
            typename Shared::Saved shared;

            [[nodiscard]] std::size_t token_count() const {
                return chunk_count == 0 ? 0 : chunks[chunk_count - 1].tokens.end;
            }
            /// That the experts here have got.
            [[nodiscard]] std::size_t rows() const {
                std::size_t sum = 0;
                for (std::size_t i = 0; i < chunk_count; ++i) sum += chunks[i].dispatch.rows();
                return sum;
            }
        };

        on(LayerSetup<Exec> const& setup, model::Experts const& part, std::string const& name)
            : rows_element_(setup.rows), has_pairs_(setup.pairs),
              router_(setup, part, (require_view(setup.context, name), name + ".gate")),
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
            router_.forward(pass, x, saved.router);
            auto const weight = saved.router.weight.rows();
            cut(context, x, saved);
            for (auto& chunk : chunks(saved)) {
                note(chunk, saved);
                chunk.dispatch.route(context, rows_of(saved.router.choice.rows(), chunk),
                                     rows_of(View<A const, 2, Exec>(weight), chunk), gate_.value().extents()[0],
                                     router_.routed(pass, x.local()[1]), rows_element_);
            }
            Tensor<output_layout, Exec> y(context, x.extents()), more;
            take_turns(
                saved, [&](Chunk& chunk) { forward(context, x.rows(), weight, y.rows(), chunk); },
                [&] {
                    more = redistribute<output_layout>(
                        shared_->forward(pass, redistribute<typename Shared::input_layout>(x), saved.shared));
                });
            if (drops_input(recomputed_)) RouterType::drop_input(saved.router);
            if (shared_) kernels::add<T>(context.exec(), more.flat(), y.flat());
            return y;
        }

        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("experts backward", "compute");
            auto const& context = pass.context;
            auto const& exec = context.exec();
            if (shared_ && drops_input(recomputed_))
                shared_->restore_input(redistribute<typename Shared::input_layout>(saved.router.x), saved.shared);
            auto const& weight = saved.router.weight;
            Tensor<dual_t<typename RouterType::ChoiceWeight>, Exec> dweight(context, weight.extents());
            Tensor<dual_t<input_layout>, Exec> through_experts(context, dy.extents()), more;
            take_turns(
                saved,
                [&](Chunk& chunk) {
                    if (recomputed_.contains(model::Piece::rows))
                        chunk.x = chunk.dispatch.forward(context, rows_of(saved.router.x.rows(), chunk));
                    backward_data(context, dy.rows(), weight.rows(), dweight.rows(), through_experts.rows(), chunk);
                },
                [&] {
                    more = redistribute<dual_t<input_layout>>(shared_->backward_data(
                        pass, redistribute<dual_t<typename Shared::output_layout>>(dy), saved.shared));
                });
            if (shared_) kernels::add<T>(exec, more.flat(), through_experts.flat());
            auto dx = router_.backward_data(pass, dweight, saved.router);
            kernels::add<T>(exec, through_experts.flat(), dx.flat());
            return dx;
        }

        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("experts weights", "compute");
            auto const& exec = pass.context.exec();
            for (auto& chunk : chunks(saved)) {
                auto const offsets = chunk.dispatch.offsets();
                kernels::grouped_gemm_weight(exec, 1.0, chunk.doutput.view(), chunk.inner.view(), offsets, 1.0,
                                             down_.gradient().array());
                kernels::grouped_gemm_weight(exec, 1.0, chunk.gate.view(), chunk.x.view(), offsets, 1.0,
                                             gate_.gradient().array());
                kernels::grouped_gemm_weight(exec, 1.0, chunk.up.view(), chunk.x.view(), offsets, 1.0,
                                             up_.gradient().array());
            }
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
        static std::span<Chunk> chunks(Saved& saved) { return {saved.chunks.data(), saved.chunk_count}; }
        /// Those of a matrix with a row for each token.
        template <class V>
        static V rows_of(V const& all, Chunk const& chunk) {
            return V(all.data() + chunk.tokens.begin * all.extent(1), chunk.tokens.end - chunk.tokens.begin,
                     all.extent(1));
        }
        /// Cuts the tokens into chunks: as many on all ranks of ep.
        void cut(Context<Exec> const& context, Tensor<input_layout, Exec> const& x, Saved& saved) const {
            bool const travels = !has_pairs_ && context.communicators().along(AxisNames(ep::name)).crosses_network();
            std::size_t const tokens = x.rows().extent(0),
                              count = travels ? pentad::detail::pieces_of<Communication>(x.flat()) : 1;
            saved.chunk_count = std::clamp<std::size_t>(count, 1, std::max<std::size_t>(tokens, 1));
            for (std::size_t i = 0; i < saved.chunk_count; ++i)
                saved.chunks[i].tokens = {tokens * i / saved.chunk_count, tokens * (i + 1) / saved.chunk_count};
        }
        /// Of a dry run: what follows is of some of the tokens.
        static void note(Chunk const& chunk, Saved const& saved) {
            auto const& [begin, end] = chunk.tokens;
            if (auto* const dry = observe::dry_run())
                dry->routing().tokens = saved.chunk_count == 1 ? 1
                                                               : static_cast<double>(end - begin) /
                                                                     static_cast<double>(saved.token_count());
        }
        /// Chunks, and then the experts that every token meets: each while the others' rows are on their way.
        template <class OfChunk, class OfShared>
        void take_turns(Saved& saved, OfChunk&& of_chunk, OfShared&& of_shared) const {
            comm::turns().take(saved.chunk_count + (shared_ ? 1 : 0), [&](std::size_t i) {
                if (i == saved.chunk_count) return of_shared();
                note(saved.chunks[i], saved);
                of_chunk(saved.chunks[i]);
            });
        }
        void forward(Context<Exec> const& context, View<T const, 2, Exec> x, View<A const, 2, Exec> weight,
                     View<T, 2, Exec> y, Chunk& chunk) const {
            auto const& exec = context.exec();
            chunk.x = chunk.dispatch.forward(context, rows_of(x, chunk));
            std::size_t const rows = chunk.x.count, width = gate_.value().local()[1];
            chunk.gate = RowBuffer<T, Exec>(context, rows, width);
            chunk.up = RowBuffer<T, Exec>(context, rows, width);
            RowBuffer<T, Exec> out(context, rows, chunk.x.columns);
            auto const offsets = chunk.dispatch.offsets();
            constexpr auto transposed = kernels::Transpose::yes;
            kernels::grouped_gemm(exec, transposed, 1.0, chunk.x.view(), gate_.value().view(), offsets, 0.0,
                                  chunk.gate.view());
            kernels::grouped_gemm(exec, transposed, 1.0, chunk.x.view(), up_.value().view(), offsets, 0.0,
                                  chunk.up.view());
            activate(context, chunk);
            kernels::grouped_gemm(exec, transposed, 1.0, chunk.inner.view(), down_.value().view(), offsets, 0.0,
                                  out.view());
            if (recomputed_.contains(model::Piece::activations)) chunk.inner = {};
            if (recomputed_.contains(model::Piece::rows)) chunk.x = {};
            chunk.dispatch.combine(context, std::move(out), rows_of(weight, chunk), rows_of(y, chunk));
        }
        void backward_data(Context<Exec> const& context, View<T const, 2, Exec> dy, View<A const, 2, Exec> weight,
                           View<A, 2, Exec> dweight, View<T, 2, Exec> dx, Chunk& chunk) const {
            auto const& exec = context.exec();
            chunk.doutput = chunk.dispatch.combine_backward(context, rows_of(dy, chunk), rows_of(weight, chunk),
                                                            rows_of(dweight, chunk));
            if (recomputed_.contains(model::Piece::activations)) activate(context, chunk);
            auto const offsets = chunk.dispatch.offsets();
            constexpr auto plain = kernels::Transpose::no;
            RowBuffer<T, Exec> dinner(context, chunk.inner.count, chunk.inner.columns);
            kernels::grouped_gemm(exec, plain, 1.0, chunk.doutput.view(), down_.value().view(), offsets, 0.0,
                                  dinner.view());
            kernels::swiglu_backward<T>(exec, dinner.view(), chunk.gate.view(), chunk.up.view(), chunk.gate.view(),
                                        chunk.up.view());
            dinner = {};
            RowBuffer<T, Exec> drows(context, chunk.x.count, chunk.x.columns);
            kernels::grouped_gemm(exec, plain, 1.0, chunk.gate.view(), gate_.value().view(), offsets, 0.0,
                                  drows.view());
            kernels::grouped_gemm(exec, plain, 1.0, chunk.up.view(), up_.value().view(), offsets, 1.0, drows.view());
            chunk.dispatch.backward(context, std::move(drows), rows_of(dx, chunk));
        }
        void activate(Context<Exec> const& context, Chunk& chunk) const {
            chunk.inner = RowBuffer<T, Exec>(context, chunk.gate.count, chunk.gate.columns);
            kernels::swiglu_forward<T>(context.exec(), chunk.gate.view(), chunk.up.view(), chunk.inner.view());
        }

        // One expert's products, as the algebra sees them: the layouts without the expert dimension must fit.
        using OneRow = expert_rows_t<input_layout>;
        using OneUp = Layout<T, Dims<Dim<ffn, dynamic, etp>, Dim<hidden>>>;
        using OneDown = Layout<T, Dims<Dim<hidden>, Dim<ffn, dynamic, etp>>>;
        static_assert((detail::require_dealt<input_layout>(), true));
        static_assert((require_multipliable<OneRow, OneUp, 1>(), true));
        static_assert((require_multipliable<product_t<OneRow, OneUp, 1>, OneDown, 1>(), true));

        Compact rows_element_;
        bool has_pairs_; ///< which hide what chunks would
        RouterType router_;
        std::optional<Shared> shared_;
        model::PieceSet recomputed_;
        Parameter<Up, used_t<Up, Row>, Exec> gate_, up_;
        Parameter<Down, used_t<Down, Row>, Exec> down_;
    };
};

} // namespace pentad::experts
