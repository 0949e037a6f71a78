// The protocol of layer.hpp as a concept, with a sentence for each requirement. A piece of recomputation whose function
// is misspelt does not compile, where it would otherwise be no piece at all.
#pragma once

#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/model/recomputation.hpp>

#include <concepts>
#include <functional>
#include <utility>

namespace pentad {

/// Called with each parameter, in an order that is the same on every rank.
template <class T, class Exec>
using ParameterVisitor = std::function<void(AnyParameter<T, Exec>&)>;

namespace detail {

template <class L>
concept HasLayerTypes = requires {
    typename L::input_layout;
    typename L::output_layout;
    typename L::Saved;
} && std::default_initializable<typename L::Saved>;
template <class L, class Exec>
concept HasForward =
    requires(L const& layer, Pass<Exec>& pass, Tensor<typename L::input_layout, Exec> x, typename L::Saved& saved) {
        { layer.forward(pass, std::move(x), saved) } -> std::same_as<Tensor<typename L::output_layout, Exec>>;
    };
template <class L, class Exec>
concept HasBackwardData = requires(L const& layer, Pass<Exec>& pass, Tensor<dual_t<typename L::output_layout>, Exec> dy,
                                   typename L::Saved& saved) {
    { layer.backward_data(pass, std::move(dy), saved) } -> std::same_as<Tensor<dual_t<typename L::input_layout>, Exec>>;
};
template <class L, class Exec>
concept HasBackwardWeight =
    requires(L const& layer, Pass<Exec>& pass, typename L::Saved& saved) { layer.backward_weight(pass, saved); };
template <class L, class Exec>
concept HasParameters = requires(L& layer, ParameterVisitor<typename L::input_layout::element, Exec> const& visit) {
    layer.for_each_parameter(visit);
};
template <class L>
concept HasPieces = requires(L const& layer) {
    { layer.pieces() } -> std::convertible_to<model::PieceSet>;
};
template <class L>
concept HasRecompute = requires(L& layer) { layer.recompute(model::PieceSet()); };
template <class L, class Exec>
concept HasRestoreInput = requires(L const& layer, Tensor<typename L::input_layout, Exec> x, typename L::Saved& saved) {
    layer.restore_input(std::move(x), saved);
};

template <class L>
concept IsTokenwise = requires { requires L::is_tokenwise; };
template <class L>
concept NamesContinueSequences = requires { &L::continue_sequences; };
template <class L, class Exec>
concept HasContinueSequences = requires(L const& layer, Pass<Exec>& pass, Tensor<typename L::input_layout, Exec> x) {
    { layer.continue_sequences(pass, std::move(x)) } -> std::same_as<Tensor<typename L::output_layout, Exec>>;
};

} // namespace detail

/// A layer that takes the tokens of sequences that are being written.
template <class L, class Exec>
concept ContinuingLayerOn = detail::HasContinueSequences<L, Exec> || detail::IsTokenwise<L>;

/// The outputs of a layer for the tokens of Pass::ragged.
template <class L, class Exec>
    requires(ContinuingLayerOn<L, Exec>)
Tensor<typename L::output_layout, Exec> continued(L const& layer, Pass<Exec>& pass,
                                                  Tensor<typename L::input_layout, Exec> x) {
    if constexpr (detail::HasContinueSequences<L, Exec>) {
        return layer.continue_sequences(pass, std::move(x));
    } else {
        typename L::Saved saved;
        return layer.forward(pass, std::move(x), saved);
    }
}

/// A layer that recomputes pieces of what it saves.
template <class L, class Exec>
concept RecomputingLayerOn = detail::HasPieces<L> && detail::HasRecompute<L> && detail::HasRestoreInput<L, Exec>;

namespace detail {
template <class L, class Exec>
concept ContinuesOrNot = HasContinueSequences<L, Exec> || !NamesContinueSequences<L>;
template <class L, class Exec>
concept RecomputesOrNot = RecomputingLayerOn<L, Exec> || !(HasPieces<L> || HasRecompute<L> || HasRestoreInput<L, Exec>);
} // namespace detail

/// A layer, Description::on<Stream, Exec>, as layer.hpp says it.
template <class L, class Exec>
concept LayerOn = detail::HasLayerTypes<L> && detail::HasForward<L, Exec> && detail::HasBackwardData<L, Exec> &&
                  detail::HasBackwardWeight<L, Exec> && detail::HasParameters<L, Exec> &&
                  detail::RecomputesOrNot<L, Exec> && detail::ContinuesOrNot<L, Exec>;

/// Does not compile where L is no LayerOn<Exec>, and says which part of the protocol is missing.
template <class L, class Exec>
consteval bool require_layer() {
    static_assert(detail::HasLayerTypes<L>,
                  "pentad: a layer has input_layout, output_layout and Saved, which can be made without arguments");
    if constexpr (detail::HasLayerTypes<L>) {
        static_assert(detail::HasForward<L, Exec>, "pentad: a layer has forward(Pass&, Tensor<input_layout>, Saved&) "
                                                   "const, which gives Tensor<output_layout>");
        static_assert(
            detail::HasBackwardData<L, Exec>,
            "pentad: a layer has backward_data(Pass&, Tensor<dual_t<output_layout>>, Saved&) const, which gives "
            "Tensor<dual_t<input_layout>>");
        static_assert(detail::HasBackwardWeight<L, Exec>, "pentad: a layer has backward_weight(Pass&, Saved&) const");
        static_assert(detail::HasParameters<L, Exec>, "pentad: a layer has for_each_parameter(f)");
        static_assert(detail::RecomputesOrNot<L, Exec>,
                      "pentad: a layer that recomputes has pieces() const, recompute(model::PieceSet) and "
                      "restore_input(Tensor<input_layout>, Saved&) const, and this one has some of them only");
        static_assert(detail::ContinuesOrNot<L, Exec>,
                      "pentad: a layer that continues sequences has continue_sequences(Pass&, Tensor<input_layout>) "
                      "const, which gives Tensor<output_layout>");
    }
    return true;
}

} // namespace pentad
