// Grouped-query attention, with rotary embedding or ALiBi: heads sharded over tp; kv heads sharded over outer(tp)
// and, where tp exceeds them, replicated over inner(tp), so that their weights' gradients are partial over it. The
// strategy says how keys meet queries over cp.
#pragma once

#include <pentad/layers/heads_output.hpp>
#include <pentad/layers/projection.hpp>
#include <pentad/layers/rms_norm.hpp>
#include <pentad/layers/rotary.hpp>
#include <pentad/layers/rounded.hpp>
#include <pentad/layers/tensor_parallel.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/resharded.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/recomputation.hpp>

#include <cmath>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad {

/// `Strategy` is one of context/: Strategy::on<Query, Key, Exec>, made from the setup and the description, has a Saved,
/// the Slices of sequences that are cut, forward(query, key, value, saved, pass), drop_output(saved) and
/// output_again(saved, pass), and backward(saved, output, dy, receive, pass), which calls receive(dq, dk, dv), in
/// elements or in accumulators, and returns the gradient of the sinks; `pass` is an AttentionPass.
/// Strategy::Cached<Query, Key, Exec> is what sequences that are being written attend by
/// (context/cached_attention.hpp). Self-attention (Ainslie et al. 2023; Su et al. 2021, in Hugging Face's rotate-half
/// convention).
/// @tparam Projection what makes the residual stream of the heads: SummedHeads, ExchangedHeads or ChosenHeads
template <class Strategy, class Communication = Blocking, class Projection = SummedHeads>
struct Attention {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using Parallel = TensorParallel<Stream, Communication, Exec>;
        using input_layout = typename Parallel::input_layout;
        using QueryMap = typename Parallel::template InputMap<Dim<ml::heads, dynamic, typename Parallel::columns>,
                                                              Dim<ml::head_dim>>;
        using KeyMap = typename Parallel::template InputMap<Dim<ml::kv_heads, dynamic, typename Parallel::kv_columns>,
                                                            Dim<ml::head_dim>>;
        using Query = typename QueryMap::output_layout;
        using Key = typename KeyMap::output_layout;
        using Input = typename Parallel::template Input<QueryMap, KeyMap, KeyMap>;
        using Output = typename Projection::template on<Stream, Query, Communication, Exec>;
        using output_layout = typename Output::output_layout;
        using StrategyOn = typename Strategy::template on<Query, Key, Exec>;

        using Cached = typename Strategy::template Cached<Query, Key, Exec>;

        using Slices = typename StrategyOn::Slices; ///< of the sequences of a micro-batch

        using QueryNorm = RmsNorm::on<Query, Exec>; // of each head by itself
        using KeyNorm = RmsNorm::on<Key, Exec>;
        using Sinks = Parameter<dimension_t<Query, ml::heads>, sinks_t<Query>, Exec>;

        struct Saved {
            typename Input::Saved input;
            typename Output::Saved output;
            typename StrategyOn::Saved attention;
            typename QueryNorm::Saved query_norm;
            typename KeyNorm::Saved key_norm;
            Tensor<sinks_gradient_t<Query>, Exec> dsinks;
        };

        /// @throws std::invalid_argument where ALiBi is asked for beside rotary embedding, or a negative cap
        on(LayerSetup<Exec> const& setup, model::Attention const& part, std::string const& name)
            : input_{// in braces, so that heads are checked in this order
                     QueryMap(setup.context, name + ".q_proj", {part.heads, part.head_dim, setup.hidden}, part.has_bias),
                  KeyMap(setup.context, name + ".k_proj", {part.kv_heads, part.head_dim, setup.hidden}, part.has_bias),
                  KeyMap(setup.context, name + ".v_proj", {part.kv_heads, part.head_dim, setup.hidden}, part.has_bias)},
              output_(Projection::template make<Stream, Query, Communication>(setup, name + ".o_proj", part.heads, part.head_dim)),
              strategy_(setup, part),
              cached_(setup, part.sight, part.scores, 1 / std::sqrt(static_cast<double>(part.head_dim)),
                      {part.kv_heads, part.head_dim, part.head_dim}),
              slices_(setup.template slice_state<Slices>()) {
            auto const& communicators = setup.context.communicators();
            auto const ranks = static_cast<double>(communicators.extent(Parallel::columns::name));
            auto const kv_ranks = static_cast<double>(communicators.extent(Parallel::kv_columns::name));
            state_ = {.token = 2 * static_cast<double>(part.kv_heads * part.head_dim * sizeof(T)) / kv_ranks,
                      .flops = 4 * static_cast<double>(part.heads * part.head_dim) / ranks};
            if (part.rotates && part.scores.alibi)
                throw std::invalid_argument(name + ": ALiBi takes the place of rotary embedding: set rotates = false");
            if (!(part.scores.soft_cap >= 0))
                throw std::invalid_argument(name + ": scores are capped at a positive number, or 0: not at all");
            if (part.scores.sinks) sinks_ = Sinks(setup.context, name + ".sinks", {part.heads}, {.deviation = 0});
            if (part.rotates) rotary_.emplace(setup, part.rotary, part.head_dim);
            if (part.norms_queries_and_keys) {
                query_norm_.emplace(setup, name + ".q_norm", part.head_dim);
                key_norm_.emplace(setup, name + ".k_norm", part.head_dim);
            }
        }

        /// Keys and values (Pope et al. 2022, section 3.3).
        [[nodiscard]] observe::DecodingState decoding_state() const { return state_; }

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("attention forward", "compute");
            auto [query, key, value] = projected(pass, std::move(x), saved);
            auto y = output_.forward(
                strategy_.forward(std::move(query), std::move(key), std::move(value), saved.attention, part_of(pass)),
                saved.output);
            if (recomputed_.contains(model::Piece::attention)) {
                output_.drop_input(saved.output);
                strategy_.drop_output(saved.attention);
            }
            if (drops_input(recomputed_)) Input::drop_input(saved.input);
            return y;
        }

        /// The keys and values of the tokens are kept.
        Tensor<output_layout, Exec> continue_sequences(Pass<Exec>& pass, Tensor<input_layout, Exec> x) const {
            observe::Scope const scope("attention forward", "compute");
            Saved saved;
            auto const [query, key, value] = projected(pass, std::move(x), saved);
            return output_.forward(cached_.forward(pass, query, key, value, used_sinks()), saved.output);
        }

        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("attention backward", "compute");
            if (recomputed_.contains(model::Piece::attention))
                output_.restore_input(strategy_.output_again(saved.attention, part_of(pass)), saved.output);
            auto const d_output = output_.backward_data(std::move(dy), saved.output);
            Tensor<dual_t<input_layout>, Exec> dx;
            auto const receive = [&](auto dquery, auto dkey, auto dvalue) {
                auto dq = rounded<dual_t<Query>>(std::move(dquery));
                auto dk = rounded<dual_t<Key>>(std::move(dkey));
                if (rotary_) {
                    rotary_->backward(pass, dq.template rows<2>());
                    rotary_->backward(pass, dk.template array_rows<2>());
                }
                if (query_norm_) {
                    dq = query_norm_->backward_data(pass, std::move(dq), saved.query_norm);
                    dk = key_norm_->backward_data(pass, std::move(dk), saved.key_norm);
                }
                dx = input_.backward_data(std::move(dq), std::move(dk), rounded<dual_t<Key>>(std::move(dvalue)),
                                          saved.input);
            };
            saved.dsinks =
                strategy_.backward(saved.attention, output_.input(saved.output), d_output, receive, part_of(pass));
            return dx;
        }

        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("attention weights", "compute");
            output_.backward_weight(saved.output);
            if (query_norm_) {
                query_norm_->backward_weight(pass, saved.query_norm);
                key_norm_->backward_weight(pass, saved.key_norm);
            }
            if (!saved.dsinks.empty())
                kernels::add<accumulator_t<T>>(pass.context.exec(), saved.dsinks.array_flat(),
                                               sinks_.gradient().array_flat());
            saved.dsinks = {};
            input_.backward_weight(saved.input);
        }
        template <class F>
        void for_each_parameter(F&& f) {
            input_.for_each_parameter(f);
            if (query_norm_) {
                query_norm_->for_each_parameter(f);
                key_norm_->for_each_parameter(f);
            }
            if (sinks_.exists()) f(sinks_);
            output_.for_each_parameter(f);
        }
        [[nodiscard]] static model::PieceSet pieces() {
            return {model::Piece::inputs, model::Piece::norms, model::Piece::attention};
        }
        void recompute(model::PieceSet pieces) { recomputed_ = pieces; }
        static void restore_input(Tensor<input_layout, Exec> x, Saved& saved) {
            Input::restore_input(std::move(x), saved.input);
        }

      private:
        /// Queries and keys, normalised and turned, and values.
        typename Input::Products projected(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            auto products = input_.forward(std::move(x), saved.input);
            auto& [query, key, value] = products;
            if (query_norm_) {
                query = query_norm_->forward(pass, std::move(query), saved.query_norm);
                key = key_norm_->forward(pass, std::move(key), saved.key_norm);
            }
            if (rotary_) {
                rotary_->forward(pass, query.template rows<2>());
                rotary_->forward(pass, key.template rows<2>());
            }
            return products;
        }
        [[nodiscard]] Tensor<sinks_t<Query>, Exec> used_sinks() const {
            return sinks_.exists() ? redistribute<sinks_t<Query>>(sinks_.value()) : Tensor<sinks_t<Query>, Exec>();
        }
        typename StrategyOn::Part part_of(Pass<Exec> const& pass) const {
            auto const at = pass.at_slice(slices_);
            return {.slices = at.memory, .index = at.index, .map = pass.map, .sinks = used_sinks()};
        }

        Input input_;
        Output output_;
        std::optional<QueryNorm> query_norm_;
        std::optional<KeyNorm> key_norm_;
        Sinks sinks_; ///< where there are any
        StrategyOn strategy_;
        Cached cached_;
        StateKey<SliceState<Slices>> slices_;
        std::optional<RotaryEmbedding<T, Exec>> rotary_;
        model::PieceSet recomputed_;
        observe::DecodingState state_;
    };
};

} // namespace pentad
