// How layers are put together: Residual, Sequence, Either, Recompute, Repeat. Wherever the layout that
// one gives is not the layout that the next takes, the redistribution between them is inserted, and its adjoint on the
// way back.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/layer.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace pentad {

/// y = x + body(norm(x)).
template <class Norm, class Body>
struct Residual {
    template <class Stream, class Exec>
    class on {
      public:
        using takes = Stream;
        using gives = Stream;
        using T = typename Stream::element;
        using NormLayer = typename Norm::template on<Stream, Exec>;
        using BodyLayer = typename Body::template on<Stream, Exec>;
        static_assert((require_redistributable<typename NormLayer::gives, typename BodyLayer::takes>(), true));
        static_assert((require_redistributable<typename BodyLayer::gives, Stream>(), true));

        struct Saved {
            typename NormLayer::Saved norm;
            typename BodyLayer::Saved body;
        };

        on(NormLayer norm, BodyLayer body) : norm_(std::move(norm)), body_(std::move(body)) {}

        Tensor<Stream, Exec> forward(Pass<Exec>& pass, Tensor<Stream, Exec> x, Saved& saved) const {
            auto h = redistribute<typename BodyLayer::takes>(norm_.forward(pass, x, saved.norm));
            auto y = redistribute<Stream>(body_.forward(pass, std::move(h), saved.body));
            kernels::add<T>(pass.context.exec(), x.flat(), y.flat());
            return y;
        }
        Tensor<dual_t<Stream>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<Stream>, Exec> dy,
                                                   Saved& saved) const {
            auto d = body_.backward_data(pass, redistribute<dual_t<typename BodyLayer::gives>>(dy), saved.body);
            auto dx = norm_.backward_data(pass, redistribute<dual_t<Stream>>(std::move(d)), saved.norm);
            kernels::add<T>(pass.context.exec(), dy.flat(), dx.flat());
            return dx;
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            body_.backward_weight(pass, saved.body);
            norm_.backward_weight(pass, saved.norm);
        }
        template <class F>
        void for_each_parameter(F&& f) {
            norm_.for_each_parameter(f);
            body_.for_each_parameter(f);
        }

      private:
        NormLayer norm_;
        BodyLayer body_;
    };
};

/// One layer after the other. The redistributions between neighbours are inserted.
template <class... Layers>
struct Sequence {
    template <class Stream, class Exec>
    class on {
      public:
        using LayerTuple = std::tuple<typename Layers::template on<Stream, Exec>...>;
        static constexpr std::size_t count = sizeof...(Layers);
        template <std::size_t I>
        using layer = std::tuple_element_t<I, LayerTuple>;
        using takes = typename layer<0>::takes;
        using gives = typename layer<count - 1>::gives;
        static_assert([]<std::size_t... I>(std::index_sequence<I...>) {
            (require_redistributable<typename layer<I>::gives, typename layer<I + 1>::takes>(), ...);
            return true;
        }(std::make_index_sequence<count - 1>{}));

        struct Saved {
            std::tuple<typename Layers::template on<Stream, Exec>::Saved...> of;
        };

        explicit on(typename Layers::template on<Stream, Exec>... layers) : layers_(std::move(layers)...) {}

        Tensor<gives, Exec> forward(Pass<Exec>& pass, Tensor<takes, Exec> x, Saved& saved) const {
            return forward_from<0>(pass, std::move(x), saved);
        }
        Tensor<dual_t<takes>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<gives>, Exec> dy,
                                                  Saved& saved) const {
            return backward_from<count - 1>(pass, std::move(dy), saved);
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            [&]<std::size_t... I>(std::index_sequence<I...>) {
                (std::get<count - 1 - I>(layers_).backward_weight(pass, std::get<count - 1 - I>(saved.of)), ...);
            }(std::make_index_sequence<count>{});
        }
        template <class F>
        void for_each_parameter(F&& f) {
            std::apply([&f](auto&... layers) { (layers.for_each_parameter(f), ...); }, layers_);
        }

      private:
        template <std::size_t I>
        Tensor<gives, Exec> forward_from(Pass<Exec>& pass, Tensor<typename layer<I>::takes, Exec> x,
                                         Saved& saved) const {
            auto y = std::get<I>(layers_).forward(pass, std::move(x), std::get<I>(saved.of));
            if constexpr (I + 1 == count)
                return y;
            else
                return forward_from<I + 1>(pass, redistribute<typename layer<I + 1>::takes>(std::move(y)), saved);
        }
        template <std::size_t I>
        Tensor<dual_t<takes>, Exec> backward_from(Pass<Exec>& pass, Tensor<dual_t<typename layer<I>::gives>, Exec> dy,
                                                  Saved& saved) const {
            auto dx = std::get<I>(layers_).backward_data(pass, std::move(dy), std::get<I>(saved.of));
            if constexpr (I == 0)
                return dx;
            else
                return backward_from<I - 1>(pass, redistribute<dual_t<typename layer<I - 1>::gives>>(std::move(dx)),
                                            saved);
        }

        LayerTuple layers_;
    };
};

/// One of two layers, chosen when it is made. It takes and gives the stream, which it redistributes to what the chosen
/// one takes, and back from what that gives.
template <class First, class Second>
struct Either {
    template <class Stream, class Exec>
    class on {
      public:
        using FirstLayer = typename First::template on<Stream, Exec>;
        using SecondLayer = typename Second::template on<Stream, Exec>;
        using takes = Stream;
        using gives = Stream;
        static_assert((require_redistributable<Stream, typename FirstLayer::takes>(), true));
        static_assert((require_redistributable<Stream, typename SecondLayer::takes>(), true));
        static_assert((require_redistributable<typename FirstLayer::gives, Stream>(), true));
        static_assert((require_redistributable<typename SecondLayer::gives, Stream>(), true));

        struct Saved {
            typename FirstLayer::Saved first;
            typename SecondLayer::Saved second;
        };

        template <class Layer>
            requires(std::is_same_v<Layer, FirstLayer> || std::is_same_v<Layer, SecondLayer>)
        explicit on(Layer layer) : layer_(std::move(layer)) {}

        Tensor<Stream, Exec> forward(Pass<Exec>& pass, Tensor<Stream, Exec> x, Saved& saved) const {
            if (auto const* first = std::get_if<FirstLayer>(&layer_))
                return forward(*first, pass, std::move(x), saved.first);
            return forward(std::get<SecondLayer>(layer_), pass, std::move(x), saved.second);
        }
        Tensor<dual_t<Stream>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<Stream>, Exec> dy,
                                                   Saved& saved) const {
            if (auto const* first = std::get_if<FirstLayer>(&layer_))
                return backward_data(*first, pass, std::move(dy), saved.first);
            return backward_data(std::get<SecondLayer>(layer_), pass, std::move(dy), saved.second);
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            if (auto const* first = std::get_if<FirstLayer>(&layer_))
                first->backward_weight(pass, saved.first);
            else
                std::get<SecondLayer>(layer_).backward_weight(pass, saved.second);
        }
        template <class F>
        void for_each_parameter(F&& f) {
            std::visit([&f](auto& layer) { layer.for_each_parameter(f); }, layer_);
        }

      private:
        template <class Layer>
        static Tensor<Stream, Exec> forward(Layer const& layer, Pass<Exec>& pass, Tensor<Stream, Exec> x,
                                            typename Layer::Saved& saved) {
            return redistribute<Stream>(layer.forward(pass, redistribute<typename Layer::takes>(std::move(x)), saved));
        }
        template <class Layer>
        static Tensor<dual_t<Stream>, Exec> backward_data(Layer const& layer, Pass<Exec>& pass,
                                                          Tensor<dual_t<Stream>, Exec> dy,
                                                          typename Layer::Saved& saved) {
            return redistribute<dual_t<Stream>>(
                layer.backward_data(pass, redistribute<dual_t<typename Layer::gives>>(std::move(dy)), saved));
        }
        std::variant<FirstLayer, SecondLayer> layer_;
    };
};

/// Keeps only its input and does the forward pass again when the backward pass comes, where recomputation is on.
template <class Layer>
struct Recompute {
    template <class Stream, class Exec>
    class on {
      public:
        using Inner = typename Layer::template on<Stream, Exec>;
        using takes = typename Inner::takes;
        using gives = typename Inner::gives;

        struct Saved {
            Tensor<takes, Exec> x;
            typename Inner::Saved inner;
        };

        on(bool enabled, Inner inner) : enabled_(enabled), inner_(std::move(inner)) {}

        Tensor<gives, Exec> forward(Pass<Exec>& pass, Tensor<takes, Exec> x, Saved& saved) const {
            if (!enabled_) return inner_.forward(pass, std::move(x), saved.inner);
            saved.x = x;
            auto y = inner_.forward(pass, std::move(x), saved.inner);
            saved.inner = {};
            return y;
        }
        Tensor<dual_t<takes>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<gives>, Exec> dy,
                                                  Saved& saved) const {
            if (enabled_) {
                pass.is_replay = true;
                (void)inner_.forward(pass, std::move(saved.x), saved.inner);
                pass.is_replay = false;
            }
            return inner_.backward_data(pass, std::move(dy), saved.inner);
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const { inner_.backward_weight(pass, saved.inner); }
        template <class F>
        void for_each_parameter(F&& f) {
            inner_.for_each_parameter(f);
        }

      private:
        bool enabled_;
        Inner inner_;
    };
};

/// The same layer several times, each with its own parameters: those of a stage of the pipeline.
template <class Layer>
struct Repeat {
    template <class Stream, class Exec>
    class on {
      public:
        using Inner = typename Layer::template on<Stream, Exec>;
        using takes = typename Inner::takes;
        using gives = typename Inner::gives;
        static_assert((require_redistributable<gives, takes>(), true));

        struct Saved {
            std::vector<typename Inner::Saved> of;
        };

        explicit on(std::vector<Inner> layers) : layers_(std::move(layers)) {}

        Tensor<takes, Exec> forward(Pass<Exec>& pass, Tensor<takes, Exec> x, Saved& saved) const {
            saved.of.resize(layers_.size());
            for (std::size_t i = 0; i < layers_.size(); ++i)
                x = redistribute<takes>(layers_[i].forward(pass, std::move(x), saved.of[i]));
            return x;
        }
        Tensor<dual_t<takes>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<takes>, Exec> dy,
                                                  Saved& saved) const {
            for (std::size_t i = layers_.size(); i-- > 0;)
                dy = layers_[i].backward_data(pass, redistribute<dual_t<gives>>(std::move(dy)), saved.of[i]);
            return dy;
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) {
            for (std::size_t i = layers_.size(); i-- > 0;) {
                layers_[i].backward_weight(pass, saved.of[i]);
                complete_gradients(pass, layers_[i]);
            }
        }
        /// Both backward passes, layer by layer: what is saved is freed, and gradients are complete, as early as can
        /// be.
        Tensor<dual_t<takes>, Exec> backward(Pass<Exec>& pass, Tensor<dual_t<takes>, Exec> dy, Saved& saved) {
            for (std::size_t i = layers_.size(); i-- > 0;) {
                dy = layers_[i].backward_data(pass, redistribute<dual_t<gives>>(std::move(dy)), saved.of[i]);
                layers_[i].backward_weight(pass, saved.of[i]);
                complete_gradients(pass, layers_[i]);
            }
            return dy;
        }
        template <class F>
        void for_each_parameter(F&& f) {
            for (auto& layer : layers_) layer.for_each_parameter(f);
        }

      private:
        std::vector<Inner> layers_;
    };
};

} // namespace pentad
