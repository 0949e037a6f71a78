// The strategy that the setup names at run time: one binary runs any.
#pragma once

#include <pentad/context/all_gather.hpp>
#include <pentad/context/cached_attention.hpp>
#include <pentad/context/double_ring.hpp>
#include <pentad/context/head_exchange.hpp>
#include <pentad/context/ring.hpp>
#include <pentad/layout/ml.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

namespace pentad::context {

using namespace ml;

/// Heads over inner(cp), which lies within a node, and a ring over outer(cp); and the other way round.
using HeadsRing = HeadExchange<Ring<Overlap<4>, outer<cp>>, inner<cp>, outer<cp>>;
using RingHeads = HeadExchange<Ring<Overlap<4>, inner<cp>>, outer<cp>, inner<cp>>;

struct Selected : KeepsKeys {
    template <class Query, class Key, class Exec>
    class on {
        template <class Strategy>
        using Of = typename Strategy::template on<Query, Key, Exec>;
        using Any = std::variant<Of<Ring<>>, Of<AllGather<>>, Of<DoubleRing<>>, Of<HeadsRing>, Of<RingHeads>>;

      public:
        using Saved =
            std::variant<typename Of<Ring<>>::Saved, typename Of<HeadsRing>::Saved, typename Of<RingHeads>::Saved>;
        using Slices =
            std::variant<typename Of<Ring<>>::Slices, typename Of<HeadsRing>::Slices, typename Of<RingHeads>::Slices>;

        using Part = AttentionPass<Slices, Query, Exec>;

        explicit on(LayerSetup<Exec> const& setup, model::Attention const& part) : strategy_(made(setup, part)) {}

        Tensor<Query, Exec> forward(Tensor<Query, Exec> query, Tensor<Key, Exec> key, Tensor<Key, Exec> value,
                                    Saved& saved, Part const& pass = {}) const {
            return std::visit(
                [&](auto const& strategy) {
                    using S = std::remove_cvref_t<decltype(strategy)>;
                    return strategy.forward(std::move(query), std::move(key), std::move(value),
                                            of<typename S::Saved>(saved), of_strategy<S>(pass));
                },
                strategy_);
        }
        void drop_output(Saved& saved) const {
            std::visit(
                [&](auto const& strategy) {
                    strategy.drop_output(of<typename std::remove_cvref_t<decltype(strategy)>::Saved>(saved));
                },
                strategy_);
        }
        Tensor<Query, Exec> output_again(Saved& saved, Part const& pass = {}) const {
            return std::visit(
                [&](auto const& strategy) {
                    using S = std::remove_cvref_t<decltype(strategy)>;
                    return strategy.output_again(of<typename S::Saved>(saved), of_strategy<S>(pass));
                },
                strategy_);
        }
        template <class Receive>
        Tensor<sinks_gradient_t<Query>, Exec> backward(Saved& saved, Tensor<Query, Exec> const& output,
                                                       Tensor<dual_t<Query>, Exec> const& dy, Receive&& receive,
                                                       Part const& pass = {}) const {
            return std::visit(
                [&](auto const& strategy) {
                    using S = std::remove_cvref_t<decltype(strategy)>;
                    return strategy.backward(of<typename S::Saved>(saved), output, dy, receive, of_strategy<S>(pass));
                },
                strategy_);
        }

      private:
        static Any made(LayerSetup<Exec> const& setup, model::Attention const& part) {
            switch (setup.block.context) {
            case ContextStrategy::ring:
                return Of<Ring<>>(setup, part);
            case ContextStrategy::all_gather:
                return Of<AllGather<>>(setup, part);
            case ContextStrategy::double_ring:
                return Of<DoubleRing<>>(setup, part);
            case ContextStrategy::heads_ring:
                return Of<HeadsRing>(setup, part);
            default:
                return Of<RingHeads>(setup, part);
            }
        }
        template <class Wanted, class Variant>
        static Wanted& of(Variant& variant) {
            if (!std::holds_alternative<Wanted>(variant)) variant.template emplace<Wanted>();
            return std::get<Wanted>(variant);
        }
        template <class Strategy>
        static typename Strategy::Part of_strategy(Part const& pass) {
            return {pass.slices == nullptr ? nullptr : &of<typename Strategy::Slices>(*pass.slices), pass.index,
                    pass.map, pass.sinks};
        }

        Any strategy_;
    };
};

} // namespace pentad::context
