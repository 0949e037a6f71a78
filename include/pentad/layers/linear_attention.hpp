// Linear attention: heads sharded over tp, a state for each head along a sequence that may be sharded over cp.
#pragma once

#include <pentad/kernels/activation.hpp>
#include <pentad/layers/gated_norm.hpp>
#include <pentad/layers/projection.hpp>
#include <pentad/layers/state_scan.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/recomputation.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace pentad {

/// y = (rms_norm(scan(silu(q), silu(k), silu(v))) * sigmoid(gate)) o^T with q, k, v and the gate linear in x, as
/// MiniMaxLightningAttention of transformers (MiniMax 2025, arXiv 2501.08313, section 2.2).
/// @tparam Along what goes along the sequence over cp: context::Recurrence
template <class Along, class Communication = Blocking>
struct LinearAttention {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using input_layout = typename Communication::template boundary<Stream, gathered_stream_t<Stream>>;
        using output_layout = typename Communication::template boundary<Stream, partial_stream_t<Stream>>;
        using ToChannels = ColumnParallel<ml::ffn, ml::hidden, gathered_stream_t<Stream>, Exec>;
        using Channels = typename ToChannels::output_layout;
        using Input = InputProjection<Communication, input_layout, ToChannels, ToChannels, ToChannels, ToChannels>;
        using Output = OutputProjection<Communication, RowParallel<ml::hidden, ml::ffn, Channels, Exec>, output_layout>;
        using Scan = StateScan<T, Along, Exec>;
        using Norm = GatedNorm<kernels::GateAfterNorm, Channels, Exec>;

        struct Saved {
            typename Input::Saved input;
            typename Output::Saved output;
            typename Scan::Saved scan;
            typename Norm::Saved norm;
            Tensor<Channels, Exec> q, k, v, gate; ///< in front of their activations
            Tensor<Channels, Exec> scanned;
        };

        on(LayerSetup<Exec> const& setup, model::LinearAttention const& part, std::string const& name)
            : part_(part), ranks_(static_cast<std::size_t>(setup.context.communicators().extent(ml::tp::name))),
              log_decay_(setup.context, {part.heads}),
              input_(channels_of(setup, name + ".q_proj"), channels_of(setup, name + ".k_proj"),
                     channels_of(setup, name + ".v_proj"), channels_of(setup, name + ".g_proj")),
              scan_(setup, part.heads, part.head_dim, part.head_dim, part.chunk),
              norm_(setup, name + ".norm", part.heads * part.head_dim, 1),
              output_({setup.context, name + ".o_proj", {setup.hidden, part.heads * part.head_dim}}) {
            auto const all = part.log_decays();
            auto const first = setup.context.communicators().shard_index(AxisNames(ml::tp::name)) * log_decay_.size();
            std::vector<A> own(log_decay_.size());
            for (std::size_t i = 0; i < own.size(); ++i) own[i] = static_cast<A>(all[first + i]);
            log_decay_.set(own.data());
        }

        /// The state, in accumulators.
        [[nodiscard]] observe::DecodingState decoding_state() const {
            return {.sequence =
                        static_cast<double>(sizeof(A) * part_.heads / ranks_ * part_.head_dim * part_.head_dim)};
        }

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("linear attention forward", "compute");
            std::tie(saved.q, saved.k, saved.v, saved.gate) = input_.forward(std::move(x), saved.input);
            saved.scanned = {pass.context, saved.v.extents()};
            {
                auto const [q, k, v] = activated(pass, saved);
                scan_.forward(pass, scanned(pass, q, k, v), of_heads(pass, saved.scanned), saved.scan);
            }
            auto y = output_.forward(norm_.forward(pass, saved.scanned, saved.gate, saved.norm), saved.output);
            if (recomputed_.contains(model::Piece::activations)) saved.output.x = {};
            if (drops_input(recomputed_)) Input::drop_input(saved.input);
            return y;
        }
        /// The states are kept: by each rank of cp, which gathers the tokens.
        Tensor<output_layout, Exec> continue_sequences(Pass<Exec>& pass, Tensor<input_layout, Exec> x) const {
            observe::Scope const scope("linear attention forward", "compute");
            using Whole = unsharded_t<Channels, ml::cp>;
            Saved saved;
            std::tie(saved.q, saved.k, saved.v, saved.gate) = input_.forward(std::move(x), saved.input);
            auto const own = activated(pass, saved);
            auto const q = redistribute<Whole>(own.q), k = redistribute<Whole>(own.k), v = redistribute<Whole>(own.v);
            Tensor<Whole, Exec> const y(pass.context, v.extents());
            y.clear();
            pass.ragged->for_each_run([&](TokenRun const& run) {
                std::size_t const first = pass.ragged->row_of_lane(run);
                auto const heads = [&](auto const& of) {
                    auto const rows = Kokkos::subview(of.rows(), std::pair(first, first + run.length), Kokkos::ALL);
                    return Of::heads(rows, 0, run.length, part_.heads / ranks_, part_.head_dim);
                };
                scan_.continue_sequence(pass, run, {heads(q), heads(k), heads(v), decays(1, run.length)}, heads(y));
            });
            return output_.forward(norm_.forward(pass, redistribute<Channels>(y), saved.gate, saved.norm),
                                   saved.output);
        }
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("linear attention backward", "compute");
            auto const& exec = pass.context.exec();
            if (recomputed_.contains(model::Piece::activations))
                saved.output.x = norm_.output_again(pass, saved.scanned, saved.gate, saved.norm);
            auto d = output_.backward_data(std::move(dy), saved.output);
            norm_.backward_data(pass, d, saved.scanned, saved.gate, saved.norm); // d is now that of saved.scanned
            saved.scanned = {};
            auto const like = d.extents();
            Gradient const dq(pass.context, like), dk(pass.context, like), dv(pass.context, like);
            {
                auto const [q, k, v] = activated(pass, saved);
                scan_.backward(pass, scanned(pass, q, k, v), of_heads(pass, d), of_heads(pass, dq), of_heads(pass, dk),
                               of_heads(pass, dv), View<A, 3, Exec>(), saved.scan);
            }
            d = {};
            kernels::silu_backward<T>(exec, dq.rows(), saved.q.rows(), saved.q.rows());
            kernels::silu_backward<T>(exec, dk.rows(), saved.k.rows(), saved.k.rows());
            kernels::silu_backward<T>(exec, dv.rows(), saved.v.rows(), saved.v.rows());
            return input_.backward_data(dual(saved.q), dual(saved.k), dual(saved.v), dual(saved.gate), saved.input);
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("linear attention weights", "compute");
            output_.backward_weight(saved.output);
            norm_.backward_weight(pass, saved.norm);
            input_.backward_weight(saved.input);
            saved = {};
        }
        template <class F>
        void for_each_parameter(F&& f) {
            input_.for_each_parameter(f);
            norm_.for_each_parameter(f);
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
        using Of = Scanned<T, Exec>;
        using Gradient = Tensor<with_element_t<dual_t<Channels>, A>, Exec>;
        struct Activated {
            Tensor<Channels, Exec> q, k, v;
        };

        ToChannels channels_of(LayerSetup<Exec> const& setup, std::string const& name) const {
            return {setup.context, name, {part_.heads * part_.head_dim, setup.hidden}};
        }
        static Activated activated(Pass<Exec>& pass, Saved const& saved) {
            auto const of = [&](Tensor<Channels, Exec> const& x) {
                Tensor<Channels, Exec> y(pass.context, x.extents());
                kernels::silu_forward<T>(pass.context.exec(), x.rows(), y.rows());
                return y;
            };
            return {of(saved.q), of(saved.k), of(saved.v)};
        }
        static Tensor<dual_t<Channels>, Exec> dual(Tensor<Channels, Exec>& gradient) {
            return std::move(gradient).template reinterpret_as<dual_t<Channels>>();
        }
        Of scanned(Pass<Exec> const& pass, Tensor<Channels, Exec> const& q, Tensor<Channels, Exec> const& k,
                   Tensor<Channels, Exec> const& v) const {
            std::size_t const seq = scan_.stretches(pass).length;
            return {of_heads(pass, q), of_heads(pass, k), of_heads(pass, v),
                    decays(v.local()[0] * v.local()[1] / seq, seq)};
        }
        /// Logarithms of what states fade by, equal for all tokens, [batch, seq, heads]; without memory where nothing
        /// fades.
        [[nodiscard]] typename Of::Decays decays(std::size_t batch, std::size_t seq) const {
            if (part_.fading == model::Fading::none) return {};
            return typename Of::Decays(log_decay_.data(), Kokkos::LayoutStride(batch, 0, seq, 0, log_decay_.size(), 1));
        }
        template <class L>
        auto of_heads(Pass<Exec> const& pass, Tensor<L, Exec> const& channels) const {
            return Of::heads(channels.rows(), 0, scan_.stretches(pass).length, part_.heads / ranks_, part_.head_dim);
        }

        model::LinearAttention part_;
        std::size_t ranks_; ///< of tp
        Tensor<Layout<A, Dims<Dim<ml::heads, dynamic, ml::tp>>>, Exec> log_decay_;
        Input input_;
        Scan scan_;
        Norm norm_;
        Output output_;
        model::PieceSet recomputed_;
    };
};

} // namespace pentad
