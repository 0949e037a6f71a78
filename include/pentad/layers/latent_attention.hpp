// Multi-head latent attention as far as a plan needs it: its products, parameters, redistributions and what it keeps.
// Its core has no kernel yet, so that it runs dry only.
#pragma once

#include <pentad/kernels/dry.hpp>
#include <pentad/layers/linear.hpp>
#include <pentad/layers/rms_norm.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/parts.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace pentad {

/// DeepSeek-AI 2024, "DeepSeek-V2", section 2.1. The projections to the latent vectors are small: every rank of tp does
/// them, and heads are sharded over tp. Over cp keys and values are gathered, and their gradients scattered.
struct LatentAttention {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using input_layout = gathered_stream_t<Stream>;
        using output_layout = partial_stream_t<Stream>;
        using Latent = with_last_dim_t<input_layout, Dim<ml::latent>>;
        using Down = Linear<input_layout, Layout<T, Dims<Dim<ml::latent>, Dim<ml::hidden>>>, 1, Exec>;
        using HeadWeight = Layout<T, Dims<Dim<ml::heads, dynamic, ml::tp>, Dim<ml::head_dim>, Dim<ml::latent>>>;
        using Up = Linear<Latent, HeadWeight, 2, Exec>;
        using FromStream =
            Linear<input_layout, Layout<T, Dims<Dim<ml::heads, dynamic, ml::tp>, Dim<ml::head_dim>, Dim<ml::hidden>>>,
                   2, Exec>;
        using Heads = typename Up::output_layout;
        using Output =
            Linear<Heads, Layout<T, Dims<Dim<ml::hidden>, Dim<ml::heads, dynamic, ml::tp>, Dim<ml::head_dim>>>, 1,
                   Exec>;
        using Norm = RmsNorm::on<Latent, Exec>;
        using Gathered = unsharded_t<Heads, ml::cp>;
        using Gradients = with_element_t<dual_t<Gathered>, A>;
        using OwnGradients = with_element_t<dual_t<Heads>, A>;

        struct Saved {
            typename Down::Saved query_down, key_down;
            typename Norm::Saved query_norm, key_norm;
            typename Up::Saved query_up, key_up;
            typename FromStream::Saved query;
            typename Output::Saved output;
            Tensor<Heads, Exec> q, k, v, o;
            memory::Buffer<typename Exec::memory_space> log_sum_exp;
        };

        on(LayerSetup<Exec> const& setup, model::LatentAttention const& part, std::string const& name)
            : part_(part), batch_(setup.batch), seq_(setup.seq), tokens_(setup.template local_tokens<input_layout>()),
              partition_(setup.partition()), is_zigzag_(setup.order == Order::zigzag),
              ranks_(static_cast<double>(setup.context.communicators().extent("tp"))),
              key_down_(setup.context, name + ".kv_a_proj_with_mqa", {part.kv_rank + part.rope_dim, setup.hidden}),
              key_norm_(setup, name + ".kv_a_layernorm", part.kv_rank),
              key_up_(setup.context, name + ".kv_b_proj", {part.heads, part.head_dim + part.value_dim, part.kv_rank}),
              output_(setup.context, name + ".o_proj", {setup.hidden, part.heads, part.value_dim}) {
            observe::require_dry("latent attention");
            std::size_t const width = part.head_dim + part.rope_dim;
            if (part.query_rank > 0) {
                query_down_.emplace(setup.context, name + ".q_a_proj", std::array{part.query_rank, setup.hidden});
                query_norm_.emplace(setup, name + ".q_a_layernorm", part.query_rank);
                query_up_.emplace(setup.context, name + ".q_b_proj", std::array{part.heads, width, part.query_rank});
            } else {
                query_.emplace(setup.context, name + ".q_proj", std::array{part.heads, width, setup.hidden});
            }
        }

        /// The latent vector and the rotary key, on every rank of tp (section 2.1.2). Queries are taken to the latent
        /// space, and outputs from there (appendix C): the products for a token are the same.
        [[nodiscard]] observe::DecodingState decoding_state() const {
            auto const number = [](std::size_t n) { return static_cast<double>(n); };
            return {.token = number((part_.kv_rank + part_.rope_dim) * sizeof(T)),
                    .flops = 2 * number(part_.heads * (2 * part_.kv_rank + part_.rope_dim)) / ranks_};
        }

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("attention forward", "compute");
            auto const& context = pass.context;
            if (query_) {
                saved.q = query_->forward(x, saved.query);
            } else {
                auto low = query_norm_->forward(pass, query_down_->forward(x, saved.query_down), saved.query_norm);
                saved.q = query_up_->forward(low, saved.query_up);
            }
            auto const both = key_down_.forward(x, saved.key_down);
            Tensor<Latent, Exec> low(context, {batch_, seq_, part_.kv_rank});
            kernels::dry("split", low.flat(), low.flat());
            low = key_norm_.forward(pass, std::move(low), saved.key_norm);
            auto const heads = key_up_.forward(low, saved.key_up);
            saved.k = tensor(context, part_.head_dim + part_.rope_dim);
            saved.v = tensor(context, part_.value_dim);
            kernels::dry("split", heads.flat(), both.flat(), saved.k.flat(), saved.v.flat());
            kernels::dry("rope", saved.q.flat(), saved.k.flat());
            auto const key = redistribute<Gathered>(saved.k), value = redistribute<Gathered>(saved.v);
            saved.o = tensor(context, part_.value_dim);
            saved.log_sum_exp = context.take(saved.o.size() / part_.value_dim * sizeof(A));
            attend("attention_forward", 1, bytes_of(saved.q, key, value, saved.o));
            return output_.forward(saved.o, saved.output);
        }
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("attention backward", "compute");
            auto const& context = pass.context;
            auto const d = output_.backward_data(std::move(dy), saved.output);
            auto const key = redistribute<Gathered>(saved.k), value = redistribute<Gathered>(saved.v);
            auto dq = tensor(context, part_.head_dim + part_.rope_dim).template as<dual_t<Heads>>();
            Tensor<Gradients, Exec> dkey(context, key.extents()), dvalue(context, value.extents());
            attend("attention_backward", 2.5, bytes_of(saved.q, key, value, saved.o, d, dq, dkey, dvalue));
            saved.q = saved.k = saved.v = saved.o = {};
            saved.log_sum_exp = {};
            auto const dk = redistribute<OwnGradients>(std::move(dkey));
            auto const dv = redistribute<OwnGradients>(std::move(dvalue));
            auto dheads = tensor(context, part_.head_dim + part_.value_dim).template as<dual_t<Heads>>();
            kernels::dry("rope", dq.flat(), dk.flat());
            kernels::dry("split", dk.flat(), dv.flat(), dheads.flat());
            auto dlow =
                key_norm_.backward_data(pass, key_up_.backward_data(std::move(dheads), saved.key_up), saved.key_norm);
            Tensor<dual_t<typename Down::output_layout>, Exec> dboth(context,
                                                                     {batch_, seq_, part_.kv_rank + part_.rope_dim});
            kernels::dry("split", dlow.flat(), dboth.flat());
            auto dx = key_down_.backward_data(std::move(dboth), saved.key_down);
            auto const dx_of_query = [&] {
                if (query_) return query_->backward_data(std::move(dq), saved.query);
                return query_down_->backward_data(
                    query_norm_->backward_data(pass, query_up_->backward_data(std::move(dq), saved.query_up),
                                               saved.query_norm),
                    saved.query_down);
            }();
            kernels::dry("add", dx_of_query.flat(), dx.flat(), dx.flat());
            return dx;
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("attention weights", "compute");
            output_.backward_weight(saved.output);
            key_up_.backward_weight(saved.key_up);
            key_norm_.backward_weight(pass, saved.key_norm);
            key_down_.backward_weight(saved.key_down);
            if (query_) query_->backward_weight(saved.query);
            if (query_) return;
            query_up_->backward_weight(saved.query_up);
            query_norm_->backward_weight(pass, saved.query_norm);
            query_down_->backward_weight(saved.query_down);
        }
        template <class F>
        void for_each_parameter(F&& f) {
            if (query_) query_->for_each_parameter(f);
            if (query_down_) {
                query_down_->for_each_parameter(f);
                query_norm_->for_each_parameter(f);
                query_up_->for_each_parameter(f);
            }
            key_down_.for_each_parameter(f);
            key_norm_.for_each_parameter(f);
            key_up_.for_each_parameter(f);
            output_.for_each_parameter(f);
        }

      private:
        [[nodiscard]] Tensor<Heads, Exec> tensor(Context<Exec> const& context, std::size_t width) const {
            return {context, {batch_, seq_, part_.heads, width}};
        }
        template <class... Tensors>
        static double bytes_of(Tensors const&... tensors) {
            return (0.0 + ... + static_cast<double>(tensors.size() * sizeof(typename Tensors::element)));
        }
        /// Causal: of all pairs of a query and a key about half, dealt over cp. Where a rank has one piece of the
        /// sequence the last one sees the most.
        void attend(char const* name, double times, double bytes) const {
            double const n = static_cast<double>(partition_.ranks()), sequence = static_cast<double>(seq_);
            double const share = n == 1 || is_zigzag_ ? (sequence + 1) / (2 * sequence * n) : (2 * n - 1) / (2 * n * n);
            double const own = static_cast<double>(tokens_) / static_cast<double>(partition_.local_extent());
            double const widths = static_cast<double>(part_.head_dim + part_.rope_dim + part_.value_dim);
            observe::dry_run()->attention(name,
                                          times * 2 * own * sequence * sequence * share *
                                              static_cast<double>(part_.heads) / ranks_ * widths,
                                          bytes);
        }

        model::LatentAttention part_;
        std::size_t batch_, seq_, tokens_;
        DealtSequence partition_;
        bool is_zigzag_;
        double ranks_;
        std::optional<Down> query_down_;
        std::optional<Norm> query_norm_;
        std::optional<Up> query_up_;
        std::optional<FromStream> query_;
        Down key_down_;
        Norm key_norm_;
        Up key_up_;
        Output output_;
    };
};

} // namespace pentad
