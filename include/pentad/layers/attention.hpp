// Room: layers. Grouped-query attention with rotary embedding: heads sharded over tp; kv heads sharded over outer(tp)
// and, where tp exceeds them, replicated over inner(tp), so that their weights' gradients are partial over it. The
// strategy says how keys meet queries over cp.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/rope.hpp>
#include <pentad/layers/projection.hpp>

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pentad {

/// `Strategy` is one of context/: Strategy::on<Query, Key, Exec> has a Saved {query, key, value, ...}, forward(saved)
/// and backward(saved, dy, receive), which calls receive(dq, dk, dv) with gradients in accumulators. Causal
/// self-attention (Ainslie et al. 2023; Su et al. 2021, in Hugging Face's rotate-half convention).
template <class Strategy, class Communication = Blocking>
struct Attention {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using takes = typename Communication::template boundary<Stream, GatheredStream<T>>;
        using gives = typename Communication::template boundary<Stream, PartialStream<T>>;
        using QueryWeight = Layout<T, Dims<Dim<heads, dynamic, tp>, Dim<head_dim>, Dim<hidden>>>;
        using KeyWeight = Layout<T, Dims<Dim<kv_heads, dynamic, outer<tp>>, Dim<head_dim>, Dim<hidden>>>;
        using OutputWeight = Layout<T, Dims<Dim<hidden>, Dim<heads, dynamic, tp>, Dim<head_dim>>>;
        using QueryMap = Linear<GatheredStream<T>, QueryWeight, 2, Exec>;
        using KeyMap = Linear<GatheredStream<T>, KeyWeight, 2, Exec>;
        using Query = typename QueryMap::gives;
        using Key = typename KeyMap::gives;
        using Input = InputProjection<Communication, takes, QueryMap, KeyMap, KeyMap>;
        using Output = OutputProjection<Communication, Linear<Query, OutputWeight, 1, Exec>, gives>;
        using StrategyOn = typename Strategy::template on<Query, Key, Exec>;

        using Table = Tensor<Layout<A, Dims<Dim<seq>, Dim<head_dim>>>, Exec>; ///< this rank's part of the rotary tables

        struct Saved {
            typename Input::Saved input;
            typename Output::Saved output;
            typename StrategyOn::Saved attention;
        };

        on(Setup<Exec> const& setup, std::string const& name)
            : input_(QueryMap(setup.context, name + ".q_proj.weight",
                              {setup.shape.heads, setup.shape.head_dim(), setup.shape.hidden}),
                     KeyMap(setup.context, name + ".k_proj.weight",
                            {setup.shape.kv_heads, setup.shape.head_dim(), setup.shape.hidden}),
                     KeyMap(setup.context, name + ".v_proj.weight",
                            {setup.shape.kv_heads, setup.shape.head_dim(), setup.shape.hidden})),
              output_({setup.context,
                       name + ".o_proj.weight",
                       {setup.shape.hidden, setup.shape.heads, setup.shape.head_dim()}}),
              strategy_(setup) {
            auto const partition = setup.partition();
            auto const mine = setup.context.communicators().shard_index(AxisNames(cp::name));
            std::size_t const length = partition.local_extent(), half = setup.shape.head_dim() / 2;
            cosine_ = Table(setup.context, {length, half});
            sine_ = Table(setup.context, {length, half});
            std::vector<i64> host(length);
            for (std::size_t i = 0; i < length; ++i) host[i] = static_cast<i64>(partition.global_index(mine, i));
            Tensor<Layout<i64, Dims<Dim<seq>>>, Exec> const positions(setup.context, {length});
            positions.set(host.data());
            kernels::rope_tables<A>(setup.context.exec(), positions.view(), setup.shape.rope_theta, cosine_.view(),
                                    sine_.view());
            setup.context.exec().fence("pentad: rope tables");
        }

        Tensor<gives, Exec> forward(Pass<Exec>& pass, Tensor<takes, Exec> x, Saved& saved) const {
            observe::Scope const scope("attention forward", "compute");
            auto& a = saved.attention;
            std::tie(a.query, a.key, a.value) = input_.forward(std::move(x), saved.input);
            auto const& exec = pass.context.exec();
            kernels::rope_forward<T>(exec, a.query.template rows<2>(), cosine_.view(), sine_.view());
            kernels::rope_forward<T>(exec, a.key.template rows<2>(), cosine_.view(), sine_.view());
            return output_.forward(strategy_.forward(a), saved.output);
        }

        Tensor<dual_t<takes>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<gives>, Exec> dy,
                                                  Saved& saved) const {
            observe::Scope const scope("attention backward", "compute");
            auto const d_output = output_.backward_data(std::move(dy), saved.output);
            Tensor<dual_t<takes>, Exec> dx;
            auto const receive = [&](auto dquery, auto dkey, auto dvalue) {
                auto const& exec = pass.context.exec();
                auto dq = rounded<dual_t<Query>>(std::move(dquery));
                auto dk = rounded<dual_t<Key>>(std::move(dkey));
                kernels::rope_backward<T>(exec, dq.template rows<2>(), cosine_.view(), sine_.view());
                kernels::rope_backward<T>(exec, dk.template rows<2>(), cosine_.view(), sine_.view());
                dx = input_.backward_data(std::move(dq), std::move(dk), rounded<dual_t<Key>>(std::move(dvalue)),
                                          saved.input);
            };
            strategy_.backward(saved.attention, d_output, receive);
            saved.attention = {};
            return dx;
        }

        void backward_weight(Pass<Exec>&, Saved& saved) const {
            observe::Scope const scope("attention weights", "compute");
            output_.backward_weight(saved.output);
            input_.backward_weight(saved.input);
        }
        template <class F>
        void for_each_parameter(F&& f) {
            input_.for_each_parameter(f);
            output_.for_each_parameter(f);
        }

      private:
        /// The gradient in the elements of the layer; itself where those are the accumulators.
        template <class L, class G>
        static Tensor<L, Exec> rounded(Tensor<G, Exec> gradient) {
            if constexpr (std::is_same_v<T, A>) {
                return std::move(gradient).template as<L>();
            } else {
                Tensor<L, Exec> result(gradient.context(), gradient.extents());
                kernels::convert<A, T>(gradient.context().exec(), gradient.flat(), result.flat());
                return result;
            }
        }

        Input input_;
        Output output_;
        StrategyOn strategy_;
        Table cosine_, sine_;
    };
};

} // namespace pentad
