// Layers one after the other, as a layer: wherever the output layout of one is not the input layout of the next,
// the redistribution between them is inserted, and its adjoint on the way back.
#pragma once

#include <pentad/layers/layer.hpp>
#include <pentad/layers/layer_protocol.hpp>

#include <cstddef>
#include <tuple>
#include <utility>

namespace pentad {

/// One layer after the other. The redistributions between neighbours are inserted.
template <class... Layers>
struct Sequential {
    template <class Stream, class Exec>
    class on {
      public:
        using LayerTuple = std::tuple<typename Layers::template on<Stream, Exec>...>;
        static_assert((require_layer<typename Layers::template on<Stream, Exec>, Exec>() && ...));
        static constexpr std::size_t count = sizeof...(Layers);
        template <std::size_t I>
        using layer = std::tuple_element_t<I, LayerTuple>;
        using input_layout = typename layer<0>::input_layout;
        using output_layout = typename layer<count - 1>::output_layout;
        static_assert([]<std::size_t... I>(std::index_sequence<I...>) {
            (require_redistributable<typename layer<I>::output_layout, typename layer<I + 1>::input_layout>(), ...);
            return true;
        }(std::make_index_sequence<count - 1>{}));

        struct Saved {
            std::tuple<typename Layers::template on<Stream, Exec>::Saved...> of;
        };

        explicit on(typename Layers::template on<Stream, Exec>... layers) : layers_(std::move(layers)...) {}

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            return forward_from<0>(pass, std::move(x), saved);
        }
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            return backward_from<count - 1>(pass, std::move(dy), saved);
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            [&]<std::size_t... I>(std::index_sequence<I...>) {
                (std::get<count - 1 - I>(layers_).backward_weight(pass, std::get<count - 1 - I>(saved.of)), ...);
            }(std::make_index_sequence<count>{});
        }
        Tensor<output_layout, Exec> continue_sequences(Pass<Exec>& pass, Tensor<input_layout, Exec> x) const
            requires(ContinuingLayerOn<typename Layers::template on<Stream, Exec>, Exec> && ...)
        {
            return continued_from<0>(pass, std::move(x));
        }
        template <class F>
        void for_each_parameter(F&& f) {
            std::apply([&f](auto&... layers) { (layers.for_each_parameter(f), ...); }, layers_);
        }

      private:
        template <std::size_t I>
        Tensor<output_layout, Exec> forward_from(Pass<Exec>& pass, Tensor<typename layer<I>::input_layout, Exec> x,
                                                 Saved& saved) const {
            auto y = std::get<I>(layers_).forward(pass, std::move(x), std::get<I>(saved.of));
            if constexpr (I + 1 == count)
                return y;
            else
                return forward_from<I + 1>(pass, redistribute<typename layer<I + 1>::input_layout>(std::move(y)),
                                           saved);
        }
        template <std::size_t I>
        Tensor<output_layout, Exec> continued_from(Pass<Exec>& pass,
                                                   Tensor<typename layer<I>::input_layout, Exec> x) const {
            auto y = continued(std::get<I>(layers_), pass, std::move(x));
            if constexpr (I + 1 == count)
                return y;
            else
                return continued_from<I + 1>(pass, redistribute<typename layer<I + 1>::input_layout>(std::move(y)));
        }
        template <std::size_t I>
        Tensor<dual_t<input_layout>, Exec>
        backward_from(Pass<Exec>& pass, Tensor<dual_t<typename layer<I>::output_layout>, Exec> dy, Saved& saved) const {
            auto dx = std::get<I>(layers_).backward_data(pass, std::move(dy), std::get<I>(saved.of));
            if constexpr (I == 0)
                return dx;
            else
                return backward_from<I - 1>(
                    pass, redistribute<dual_t<typename layer<I - 1>::output_layout>>(std::move(dx)), saved);
        }

        LayerTuple layers_;
    };
};

} // namespace pentad
