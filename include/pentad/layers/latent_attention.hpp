// Multi-head latent attention: keys and values of all heads are made from one narrow vector for each token, so that
// over cp this vector travels, and not the heads. Heads are sharded over tp; the projections down, which are small, are
// done by every rank of tp.
#pragma once

#include <pentad/kernels/gemm.hpp>
#include <pentad/kernels/latent_heads.hpp>
#include <pentad/layers/attention.hpp>
#include <pentad/layers/linear.hpp>
#include <pentad/layers/rms_norm.hpp>
#include <pentad/layers/rotary.hpp>
#include <pentad/layers/rounded.hpp>
#include <pentad/layers/tensor_parallel.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/recomputation.hpp>

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace pentad {

namespace detail {
/// Latent vectors, with rotary keys behind them, as the keys of one head.
template <class Latent>
struct KeptLatent;
template <class T, class Batch, class Seq, class Width, class... States>
struct KeptLatent<Layout<T, Dims<Batch, Seq, Width>, States...>> {
    using type = Layout<T, Dims<Batch, Seq, Dim<ml::kv_heads>, Dim<ml::head_dim>>, States...>;
};
} // namespace detail

/// DeepSeek-AI 2024, "DeepSeek-V2", section 2.1, as DeepseekV3Attention of transformers, whose names its parameters
/// have. The vectors of a token x [hidden] and a head are:
///
///     query [head_dim | rope_dim] = q_b norm(q_a x), or q x; its second part is turned
///     latent [kv_rank], rotary key [rope_dim] = kv_a x; the first is normalised, the second turned
///     key [head_dim], value [value_dim] = kv_b latent; behind the key comes the rotary key, of all heads
///
/// Over cp the latent vectors and the rotary keys are gathered, and each rank makes keys and values of the whole
/// sequence from them for its own queries: kv_b is used as replicated over cp, so that its gradient is partial over it.
/// With more than one rank of cp only this rank's latent vectors are kept for the backward pass, which gathers them and
/// makes keys and values again.
///
/// Sequences that are being written keep the latent vectors and the rotary keys, as the keys of one head for all;
/// queries are taken to the latent space, and outputs from there (appendix C).
/// @tparam Strategy how queries meet keys: context::WholeKeys
/// @tparam Projection what makes the residual stream of the heads: SummedHeads, ExchangedHeads or ChosenHeads
template <class Strategy, class Communication = Blocking, class Projection = SummedHeads>
struct LatentAttention {
    template <class Stream, class Exec>
    class on {
        using OfHeads = Dim<ml::heads, dynamic, ml::tp>;

      public:
        using T = typename Stream::element;
        using Parallel = TensorParallel<Stream, Communication, Exec>;
        using input_layout = typename Parallel::input_layout;
        using Down = typename Parallel::template InputMap<Dim<ml::latent>>;
        using QueryMap = typename Parallel::template InputMap<OfHeads, Dim<ml::head_dim>>;
        using Latent = typename Down::output_layout; ///< of this rank's tokens, the same on all ranks of tp
        using Norm = RmsNorm::on<Latent, Exec>;
        using HeadWeight = Layout<T, Dims<OfHeads, Dim<ml::head_dim>, Dim<ml::latent>>>;
        using QueryUp = Linear<Latent, HeadWeight, 2, Exec>;
        using Query = typename QueryUp::output_layout;
        using WholeLatent = unsharded_t<Latent, ml::cp>;
        using KeyUp = Linear<WholeLatent, HeadWeight, 2, Exec>;
        using Key = typename KeyUp::output_layout;
        using RotaryKey = with_last_dim_t<Latent, Dim<ml::head_dim>>;
        using WholeRotaryKey = unsharded_t<RotaryKey, ml::cp>;
        using FromStream = typename Parallel::template Input<QueryMap, Down>; ///< queries straight from the stream
        using FromLatent = typename Parallel::template Input<Down, Down>;
        using Output = typename Projection::template on<Stream, Query, Communication, Exec>;
        using output_layout = typename Output::output_layout;
        using StrategyOn = typename Strategy::template on<Query, Key, Exec>;
        using KeptKey = typename detail::KeptLatent<Latent>::type;
        using Cached = typename Strategy::template Cached<Query, KeptKey, Exec>;
        using Slices = typename StrategyOn::Slices; ///< of the sequences of a micro-batch

        struct Saved {
            typename FromStream::Saved from_stream;
            typename FromLatent::Saved from_latent;
            typename Norm::Saved query_norm, key_norm;
            typename QueryUp::Saved query_up;
            typename KeyUp::Saved key_up;
            Tensor<Latent, Exec> latent;    ///< of this rank's tokens, normalised
            Tensor<RotaryKey, Exec> rotary; ///< of this rank's tokens, turned, where keys are made again
            typename StrategyOn::Saved attention;
            typename Output::Saved output;
        };

        /// @throws std::invalid_argument where a width or rank is 0, or rope_dim is odd
        on(LayerSetup<Exec> const& setup, model::LatentAttention const& part, std::string const& name)
            : part_(checked(part, name)), slices_(setup.template slice_state<Slices>()),
              tp_(static_cast<double>(setup.context.communicators().extent(ml::tp::name))),
              gathers_(setup.context.communicators().extent(ml::cp::name) > 1),
              key_norm_(setup, name + ".kv_a_layernorm", part.kv_rank, part.norm_epsilon),
              key_up_(setup.context, name + ".kv_b_proj", {part.heads, part.head_dim + part.value_dim, part.kv_rank}),
              rotary_(setup, part.rotary, part.rope_dim), strategy_(setup, part.sight, part.score_scale()),
              cached_(setup, part.sight, {}, part.score_scale(), {1, part.kv_rank + part.rope_dim, part.kv_rank, true}),
              output_(Projection::template make<Stream, Query, Communication>(setup, name + ".o_proj", part.heads,
                                                                              part.value_dim)) {
            Down key_down(setup.context, name + ".kv_a_proj_with_mqa", {part.kv_rank + part.rope_dim, setup.hidden});
            if (part.query_rank == 0) {
                from_stream_.emplace(
                    QueryMap(setup.context, name + ".q_proj", {part.heads, part.width(), setup.hidden}),
                    std::move(key_down));
            } else {
                from_latent_.emplace(Down(setup.context, name + ".q_a_proj", {part.query_rank, setup.hidden}),
                                     std::move(key_down));
                query_norm_.emplace(setup, name + ".q_a_layernorm", part.query_rank, part.norm_epsilon);
                query_up_.emplace(
                    setup.context, name + ".q_b_proj",
                    typename QueryUp::parameter_type::extents_type{part.heads, part.width(), part.query_rank});
            }
        }

        /// The latent vector and the rotary key, on every rank of tp (section 2.1.2). Queries are taken to the latent
        /// space, and outputs from there (appendix C): the products for a token are the same.
        [[nodiscard]] observe::DecodingState decoding_state() const {
            auto const number = [](std::size_t n) { return static_cast<double>(n); };
            return {.token = number((part_.kv_rank + part_.rope_dim) * sizeof(T)),
                    .flops = 2 * number(part_.heads * (2 * part_.kv_rank + part_.rope_dim)) / tp_};
        }

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("attention forward", "compute");
            auto query = turned(pass, std::move(x), saved);
            auto [key, value] = keys_and_values(pass, saved);
            auto y = output_.forward(
                strategy_.forward(std::move(query), std::move(key), std::move(value), saved.attention, part_of(pass)),
                saved.output);
            drop(saved);
            return y;
        }

        /// Latent vectors and rotary keys of the tokens are kept.
        Tensor<output_layout, Exec> continue_sequences(Pass<Exec>& pass, Tensor<input_layout, Exec> x) const {
            observe::Scope const scope("attention forward", "compute");
            Saved saved;
            auto const query = to_latent(turned(pass, std::move(x), saved));
            auto const& like = query.extents();
            Tensor<KeptKey, Exec> const key(pass.context, {like[0], like[1], 1, like[3]});
            kernels::join_columns<T>(pass.context.exec(), saved.latent.rows(), saved.rotary.rows(),
                                     key.template rows<2>());
            return output_.forward(from_latent(cached_.forward(pass, query, key, {}, {})), saved.output);
        }

        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("attention backward", "compute");
            restore(pass, saved);
            auto const d_output = output_.backward_data(std::move(dy), saved.output);
            Tensor<dual_t<input_layout>, Exec> dx;
            auto const receive = [&](auto d_query, auto d_key, auto d_value) {
                auto dq = rounded<dual_t<Query>>(std::move(d_query));
                rotary_.backward(pass, dq.template rows<2>(), part_.head_dim);
                auto d_down = down_gradient(pass, std::move(d_key), std::move(d_value), saved);
                if (from_stream_) {
                    dx = from_stream_->backward_data(std::move(dq), std::move(d_down), saved.from_stream);
                } else {
                    auto d_latent = query_norm_->backward_data(
                        pass, query_up_->backward_data(std::move(dq), saved.query_up), saved.query_norm);
                    dx = from_latent_->backward_data(std::move(d_latent), std::move(d_down), saved.from_latent);
                }
            };
            (void)strategy_.backward(saved.attention, output_.input(saved.output), d_output, receive, part_of(pass));
            return dx;
        }

        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("attention weights", "compute");
            output_.backward_weight(saved.output);
            key_up_.backward_weight(saved.key_up);
            key_norm_.backward_weight(pass, saved.key_norm);
            if (from_stream_) return from_stream_->backward_weight(saved.from_stream);
            query_up_->backward_weight(saved.query_up);
            query_norm_->backward_weight(pass, saved.query_norm);
            from_latent_->backward_weight(saved.from_latent);
        }
        template <class F>
        void for_each_parameter(F&& f) {
            if (from_stream_) {
                from_stream_->for_each_parameter(f);
            } else {
                from_latent_->for_each_parameter(f);
                query_norm_->for_each_parameter(f);
                query_up_->for_each_parameter(f);
            }
            key_norm_.for_each_parameter(f);
            key_up_.for_each_parameter(f);
            output_.for_each_parameter(f);
        }
        /// Piece::norms drops the outputs of its own norms too, Piece::attention keys and values as well, which are
        /// made again from the latent vectors (DeepSeek-V3, section 3.2.3).
        [[nodiscard]] static model::PieceSet pieces() {
            return {model::Piece::inputs, model::Piece::norms, model::Piece::attention};
        }
        void recompute(model::PieceSet pieces) { recomputed_ = pieces; }
        void restore_input(Tensor<input_layout, Exec> x, Saved& saved) const {
            if (from_stream_)
                FromStream::restore_input(std::move(x), saved.from_stream);
            else
                FromLatent::restore_input(std::move(x), saved.from_latent);
        }

      private:
        static model::LatentAttention const& checked(model::LatentAttention const& part, std::string const& name) {
            if (part.heads * part.head_dim * part.value_dim * part.kv_rank == 0)
                throw std::invalid_argument(name + ": latent attention needs heads, widths of keys and values, and a "
                                                   "rank of keys and values, of at least 1");
            if (part.rope_dim == 0 || part.rope_dim % 2 != 0)
                throw std::invalid_argument(name + ": " + std::to_string(part.rope_dim) +
                                            " elements of queries and keys cannot be turned in pairs: give an even "
                                            "number, at least 2");
            return part;
        }
        [[nodiscard]] bool recomputes(model::Piece piece) const { return recomputed_.contains(piece); }
        /// Slices that follow need the keys of those before.
        [[nodiscard]] bool drops_keys() const {
            return !slices_.exists() && (gathers_ || recomputes(model::Piece::attention));
        }

        typename StrategyOn::Part part_of(Pass<Exec> const& pass) const {
            auto const at = pass.at_slice(slices_);
            return {.slices = at.memory, .index = at.index, .map = pass.map};
        }
        /// Queries, turned; leaves the latent vectors, normalised, and the rotary keys, turned, in `saved`.
        Tensor<Query, Exec> turned(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            auto [query, down] = projected(pass, std::move(x), saved);
            rotary_.forward(pass, query.template rows<2>(), part_.head_dim);
            auto const [batch, seq, width] = down.extents();
            saved.latent = {pass.context, {batch, seq, part_.kv_rank}};
            saved.rotary = {pass.context, {batch, seq, part_.rope_dim}};
            kernels::split_columns<T>(pass.context.exec(), down.rows(), saved.latent.rows(), saved.rotary.rows());
            down = {};
            rotary_.forward(pass, saved.rotary.rows());
            saved.latent = key_norm_.forward(pass, std::move(saved.latent), saved.key_norm);
            return query;
        }
        /// Queries, not turned yet, and what latent vector and rotary key are cut from.
        std::pair<Tensor<Query, Exec>, Tensor<Latent, Exec>> projected(Pass<Exec>& pass, Tensor<input_layout, Exec> x,
                                                                       Saved& saved) const {
            if (from_stream_) {
                auto [query, down] = from_stream_->forward(std::move(x), saved.from_stream);
                return {std::move(query), std::move(down)};
            }
            auto [latent, down] = from_latent_->forward(std::move(x), saved.from_latent);
            return {query_up_->forward(query_norm_->forward(pass, std::move(latent), saved.query_norm), saved.query_up),
                    std::move(down)};
        }
        /// f(rows of kv_b of a head's key, and of its value, the head) for this rank's heads.
        template <class F>
        void for_each_head(F&& f) const {
            std::size_t const heads = key_up_.weight().value().local()[0], rows = part_.head_dim + part_.value_dim;
            for (std::size_t head = 0; head < heads; ++head) {
                auto const of = [&](std::size_t first, std::size_t count) {
                    auto const begin = head * rows + first;
                    return Kokkos::subview(key_up_.matrix(), std::pair(begin, begin + count), Kokkos::ALL);
                };
                f(of(0, part_.head_dim), of(part_.head_dim, part_.value_dim), head);
            }
        }
        /// Columns [first, first + count) of a head of a tensor.
        static auto of_head(Tensor<Query, Exec> const& tensor, std::size_t head, std::size_t first, std::size_t count) {
            std::size_t const begin = head * tensor.local()[3] + first;
            return Kokkos::subview(tensor.template rows<2>(), Kokkos::ALL, std::pair(begin, begin + count));
        }
        /// The queries of keys that are latent vectors with rotary keys behind them.
        Tensor<Query, Exec> to_latent(Tensor<Query, Exec> const& query) const {
            auto const& exec = query.context().exec();
            auto const [batch, seq, heads, width] = query.extents();
            Tensor<Query, Exec> result(query.context(), {batch, seq, heads, part_.kv_rank + part_.rope_dim});
            for_each_head([&](auto const& of_key, auto const&, std::size_t head) {
                kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::no, 1.0,
                              of_head(query, head, 0, part_.head_dim), of_key, 0.0,
                              of_head(result, head, 0, part_.kv_rank));
            });
            auto const turned_of = [](auto const& tensor, std::size_t first) {
                return Kokkos::subview(tensor.array(), Kokkos::ALL, Kokkos::ALL, Kokkos::ALL,
                                       std::pair(first, tensor.local()[3]));
            };
            auto const from = turned_of(query, part_.head_dim), to = turned_of(result, part_.kv_rank);
            if (!kernels::dry("rotary queries", from, to))
                memory::copy("rotary queries", exec, memory::runs_between(to, from), to.data(), from.data());
            return result;
        }
        /// The outputs of heads whose values are latent vectors.
        Tensor<Query, Exec> from_latent(Tensor<Query, Exec> const& latent) const {
            auto extents = latent.extents();
            extents[3] = part_.value_dim;
            Tensor<Query, Exec> result(latent.context(), extents);
            for_each_head([&](auto const&, auto const& of_value, std::size_t head) {
                kernels::gemm(latent.context().exec(), kernels::Transpose::no, kernels::Transpose::yes, 1.0,
                              of_head(latent, head, 0, part_.kv_rank), of_value, 0.0,
                              of_head(result, head, 0, part_.value_dim));
            });
            return result;
        }
        /// Keys and values of the whole sequence, for this rank's heads.
        std::pair<Tensor<Key, Exec>, Tensor<Key, Exec>> keys_and_values(Pass<Exec> const& pass, Saved& saved) const {
            auto const& context = pass.context;
            auto const rotary = redistribute<WholeRotaryKey>(saved.rotary);
            auto const products = key_up_.forward(redistribute<WholeLatent>(saved.latent), saved.key_up);
            auto const [batch, seq, heads, width] = products.extents();
            Tensor<Key, Exec> key(context, {batch, seq, heads, part_.width()}),
                value(context, {batch, seq, heads, part_.value_dim});
            kernels::latent_heads<T>(context.exec(), products.local()[2], products.template rows<2>(), rotary.rows(),
                                     key.template rows<2>(), value.template rows<2>());
            return {std::move(key), std::move(value)};
        }
        /// The gradient of the projection that holds latent vector and rotary key, from the gradients of keys and
        /// values.
        template <class G>
        Tensor<dual_t<Latent>, Exec> down_gradient(Pass<Exec>& pass, Tensor<G, Exec> d_key, Tensor<G, Exec> d_value,
                                                   Saved& saved) const {
            auto const& context = pass.context;
            auto const [batch, seq, heads, width] = d_key.extents();
            Tensor<dual_t<Key>, Exec> d_products(context, {batch, seq, heads, part_.head_dim + part_.value_dim});
            Tensor<dual_t<WholeRotaryKey>, Exec> d_whole_rotary(context, {batch, seq, part_.rope_dim});
            kernels::latent_heads_backward<T>(context.exec(), d_products.local()[2], d_key.template array_rows<2>(),
                                              d_value.template array_rows<2>(), d_products.template array_rows<2>(),
                                              d_whole_rotary.array_rows());
            d_key = d_value = {};
            auto const d_rotary = redistribute<dual_t<RotaryKey>>(std::move(d_whole_rotary));
            rotary_.backward(pass, d_rotary.array_rows());
            auto const d_latent = key_norm_.backward_data(
                pass, redistribute<dual_t<Latent>>(key_up_.backward_data(std::move(d_products), saved.key_up)),
                saved.key_norm);
            Tensor<dual_t<Latent>, Exec> d_down(context, {batch, seq, part_.kv_rank + part_.rope_dim});
            kernels::join_columns<T>(context.exec(), d_latent.array_rows(), d_rotary.array_rows(), d_down.array_rows());
            return d_down;
        }

        /// Frees what restore() makes again.
        void drop(Saved& saved) const {
            if (recomputes(model::Piece::attention)) {
                output_.drop_input(saved.output);
                StrategyOn::drop_output(saved.attention);
            }
            if (drops_keys())
                saved.attention.key = saved.attention.value = {};
            else
                saved.rotary = {};
            if (drops_keys() || gathers_ || recomputes(model::Piece::norms)) saved.key_up.x = {};
            if (recomputes(model::Piece::norms)) saved.latent = saved.query_up.x = {};
            if (drops_input(recomputed_)) {
                if (from_stream_)
                    FromStream::drop_input(saved.from_stream);
                else
                    FromLatent::drop_input(saved.from_latent);
            }
        }
        void restore(Pass<Exec>& pass, Saved& saved) const {
            if (recomputes(model::Piece::norms)) {
                saved.latent = key_norm_.output_again(pass, saved.key_norm);
                if (query_norm_) saved.query_up.x = query_norm_->output_again(pass, saved.query_norm);
            }
            if (drops_keys())
                std::tie(saved.attention.key, saved.attention.value) = keys_and_values(pass, saved);
            else if (saved.key_up.x.empty())
                saved.key_up.x = redistribute<WholeLatent>(saved.latent);
            saved.latent = {};
            saved.rotary = {};
            if (recomputes(model::Piece::attention))
                output_.restore_input(strategy_.output_again(saved.attention, part_of(pass)), saved.output);
        }

        model::LatentAttention part_;
        StateKey<SliceState<Slices>> slices_;
        double tp_;    ///< ranks
        bool gathers_; ///< over more than one rank of cp
        std::optional<FromStream> from_stream_;
        std::optional<FromLatent> from_latent_;
        std::optional<Norm> query_norm_;
        std::optional<QueryUp> query_up_;
        Norm key_norm_;
        KeyUp key_up_;
        RotaryEmbedding<T, Exec> rotary_;
        StrategyOn strategy_;
        Cached cached_;
        Output output_;
        model::PieceSet recomputed_;
    };
};

} // namespace pentad
