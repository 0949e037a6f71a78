// Heads for sequence: all-to-alls over an axis give each rank whole stretches of the sequence and a share of the heads
// (DeepSpeed-Ulysses: Jacobs et al. 2023, arXiv 2309.14509), and another strategy does the rest over the other factor
// of cp (USP: Fang and Zhao 2024, arXiv 2405.07719).
#pragma once

#include <pentad/context/cached_attention.hpp>
#include <pentad/context/detail/blocks.hpp>
#include <pentad/context/detail/pair.hpp>
#include <pentad/kernels/head_groups.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/rounded.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/resharded.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <cstddef>
#include <numeric>
#include <utility>

namespace pentad::context {

using namespace ml;

/// Everything is sent in the element type; with the gradient of the output goes their product, summed over head_dim, in
/// place of the output, which the layer keeps. Kv heads that the ranks of HeadAxis do not divide are repeated before
/// they are sent; the gradients of the copies are sent in the accumulator type, and then summed.
/// @tparam Inside the strategy over RingAxis @tparam HeadAxis, RingAxis the factors of cp
template <class Inside, class HeadAxis, class RingAxis>
struct HeadExchange : KeepsKeys {
    template <class Query, class Key, class Exec>
    class on {
      public:
        using T = typename Query::element;
        using A = accumulator_t<T>;
        /// The position of a rank in the sequence is that along RingAxis and then that along HeadAxis.
        using Shard = factored_t<Query, cp, RingAxis, HeadAxis>;
        using KeyShard = factored_t<Key, cp, RingAxis, HeadAxis>;
        using Stretch = resharded_t<Shard, HeadAxis, heads>;
        using KeyStretch = resharded_t<KeyShard, HeadAxis, kv_heads>;
        using InsideOn = typename Inside::template on<Stretch, KeyStretch, Exec>;
        struct Saved {
            typename InsideOn::Saved inside;
            std::size_t copies = 1; ///< of each kv head
        };
        using Slices = typename InsideOn::Slices;
        using Part = AttentionPass<Slices, Query, Exec>;

        explicit on(LayerSetup<Exec> const& setup, model::Attention const& part)
            : inside_(setup, part),
              ranks_(static_cast<std::size_t>(setup.context.communicators().extent(HeadAxis::name))) {}

        Tensor<Query, Exec> forward(Tensor<Query, Exec> query, Tensor<Key, Exec> key, Tensor<Key, Exec> value,
                                    Saved& saved, Part const& pass = {}) const {
            saved.copies = ranks_ / std::gcd(ranks_, key.local()[2]);
            auto stretch = redistribute<Stretch>(std::move(query).template reinterpret_as<Shard>());
            auto keys = to_heads(std::move(key), saved.copies), values = to_heads(std::move(value), saved.copies);
            return to_sequence<Query, Shard>(
                inside_.forward(std::move(stretch), std::move(keys), std::move(values), saved.inside, inside(pass)));
        }
        static void drop_output(Saved& saved) { InsideOn::drop_output(saved.inside); }
        Tensor<Query, Exec> output_again(Saved& saved, Part const& pass = {}) const {
            return to_sequence<Query, Shard>(inside_.output_again(saved.inside, inside(pass)));
        }
        template <class Receive>
        Tensor<sinks_gradient_t<Query>, Exec> backward(Saved& saved, Tensor<Query, Exec> const& output,
                                                       Tensor<dual_t<Query>, Exec> const& dy, Receive&& receive,
                                                       Part const& pass = {}) const {
            auto delta = redistribute<typename Delta<Stretch, Exec>::layout>(
                delta_of(output, dy).template reinterpret_as<typename Delta<Shard, Exec>::layout>());
            auto const gradient = redistribute<dual_t<Stretch>>(dy.template reinterpret_as<dual_t<Shard>>());
            auto dsinks = inside_.backward(
                saved.inside, std::move(delta), gradient,
                [&](auto dquery, auto dkey, auto dvalue) {
                    auto dq = to_sequence<dual_t<Query>, dual_t<Shard>>(rounded<dual_t<Stretch>>(std::move(dquery)));
                    if (saved.copies == 1)
                        receive(std::move(dq), from_heads<T>(std::move(dkey), 1), from_heads<T>(std::move(dvalue), 1));
                    else
                        receive(std::move(dq), from_heads<A>(std::move(dkey), saved.copies),
                                from_heads<A>(std::move(dvalue), saved.copies));
                },
                inside(pass));
            if (dsinks.empty()) return {};
            return redistribute<sinks_gradient_t<Shard>>(std::move(dsinks))
                .template reinterpret_as<sinks_gradient_t<Query>>();
        }

      private:
        /// The pass of the heads that this rank has inside.
        static typename InsideOn::Part inside(Part const& pass) {
            typename InsideOn::Part part{.slices = pass.slices, .index = pass.index, .map = pass.map};
            if (!pass.sinks.empty())
                part.sinks = redistribute<sinks_t<Stretch>>(pass.sinks.template reinterpret_as<sinks_t<Shard>>());
            return part;
        }
        static Tensor<KeyStretch, Exec> to_heads(Tensor<Key, Exec> key, std::size_t copies) {
            if (copies > 1) {
                auto extents = key.extents();
                extents[2] *= copies;
                Tensor<Key, Exec> repeated(key.context(), extents);
                kernels::repeat_rows<T>(key.context().exec(), key.rows(), repeated.rows());
                key = std::move(repeated);
            }
            return redistribute<KeyStretch>(std::move(key).template reinterpret_as<KeyShard>());
        }
        /// @tparam E what the gradient travels in
        template <class E, class G>
        static auto from_heads(Tensor<G, Exec> gradient, std::size_t copies) {
            using KeyGradient = with_element_t<dual_t<Key>, E>;
            auto repeated =
                redistribute<with_element_t<dual_t<KeyShard>, E>>(rounded<with_element_t<G, E>>(std::move(gradient)))
                    .template reinterpret_as<KeyGradient>();
            if (copies == 1) return repeated;
            auto extents = repeated.extents();
            extents[2] /= copies;
            Tensor<KeyGradient, Exec> sums(repeated.context(), extents);
            kernels::sum_rows<E>(repeated.context().exec(), repeated.array_rows(), sums.array_rows());
            return sums;
        }

        template <class To, class Sharded, class Stretched>
        static Tensor<To, Exec> to_sequence(Tensor<Stretched, Exec> tensor) {
            return redistribute<Sharded>(std::move(tensor)).template reinterpret_as<To>();
        }

        InsideOn inside_;
        std::size_t ranks_;
    };
};

} // namespace pentad::context
