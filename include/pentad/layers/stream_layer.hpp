// A layer from the residual stream to itself, whatever it is inside: what a model's list of blocks is made of. A layer
// type is checked by the compiler with its own layouts and that of its stream; the stack of them is a list made at run
// time, in which a stream is a layout value. A new kind of layer is compiled once, in a unit of its own.
#pragma once

#include <pentad/layers/expert_placement.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/layer_protocol.hpp>
#include <pentad/layers/router_load.hpp>
#include <pentad/model/recomputation.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/tensor/any_tensor.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

namespace pentad {

/// What a layer keeps from forward for backward.
class SavedState {
  public:
    SavedState() = default;
    SavedState(SavedState const&) = delete;
    SavedState& operator=(SavedState const&) = delete;
    virtual ~SavedState() = default;
    /// Forgets it: the memory goes back to its pool.
    virtual void clear() = 0;
};

/// The protocol of layer.hpp, from a residual stream to itself, whose layout is a value. Inputs and gradients are
/// consumed.
template <class T, class Exec>
class StreamLayer {
  public:
    StreamLayer() = default;
    StreamLayer(StreamLayer const&) = delete;
    StreamLayer& operator=(StreamLayer const&) = delete;
    virtual ~StreamLayer() = default;

    /// The layout of its input and of its output; gradients have its dual.
    [[nodiscard]] virtual LayoutValue const& stream() const = 0;
    [[nodiscard]] virtual std::unique_ptr<SavedState> make_saved() const = 0;
    virtual AnyTensor<T, Exec> forward(Pass<Exec>& pass, AnyTensor<T, Exec> x, SavedState& saved) const = 0;
    virtual AnyTensor<T, Exec> backward_data(Pass<Exec>& pass, AnyTensor<T, Exec> dy, SavedState& saved) const = 0;
    virtual void backward_weight(Pass<Exec>& pass, SavedState& saved) const = 0;
    virtual void for_each_parameter(ParameterVisitor<T, Exec> const& visit) = 0;
    /// Whether it takes the tokens of sequences that are being written, and its outputs for them.
    [[nodiscard]] virtual bool continues_sequences() const { return false; }
    virtual AnyTensor<T, Exec> continue_sequences(Pass<Exec>&, AnyTensor<T, Exec>) const {
        throw std::logic_error("continues no sequences");
    }
    /// What it would keep of each sequence that is being written: a layer that says nothing keeps nothing.
    [[nodiscard]] virtual observe::DecodingState decoding_state() const { return {}; }
    /// The load of its router in all training passes so far; none where it has no router. Waits.
    [[nodiscard]] virtual std::optional<RouterLoad> router_load() const { return {}; }
    /// Where its experts are; null where it has none.
    [[nodiscard]] virtual ExpertPlacement<Exec>* expert_placement() { return nullptr; }

    /// The pieces of what it saves that it can recompute.
    [[nodiscard]] virtual model::PieceSet pieces() const { return {}; }
    /// Recomputes these from now on, which are some of pieces().
    virtual void recompute(model::PieceSet) {}
    /// Its input, before backward_data, where it recomputes Piece::inputs or Piece::norms.
    virtual void restore_input(AnyTensor<T, Exec>, SavedState&) const { throw std::logic_error("keeps its input"); }
    /// The output of a norm, again.
    virtual AnyTensor<T, Exec> output_again(Pass<Exec>&, SavedState&) const { throw std::logic_error("is no norm"); }
};

/// A layer of the compile-time protocol on a stream of layout Stream: the redistributions between the stream and the
/// layer's input and output layouts are inserted. It does not compile where there is no such redistribution.
template <class Layer, class Stream, class Exec>
class AsStreamLayer final : public StreamLayer<typename Stream::element, Exec> {
    static_assert(require_layer<Layer, Exec>());
    static_assert((require_redistributable<Stream, typename Layer::input_layout>(), true));
    static_assert((require_redistributable<typename Layer::output_layout, Stream>(), true));
    using T = typename Stream::element;
    using Any = AnyTensor<T, Exec>;

  public:
    explicit AsStreamLayer(Layer layer) : layer_(std::move(layer)) {}

    [[nodiscard]] LayoutValue const& stream() const override { return Stream::value; }
    [[nodiscard]] std::unique_ptr<SavedState> make_saved() const override { return std::make_unique<Saved>(); }
    Any forward(Pass<Exec>& pass, Any x, SavedState& saved) const override {
        return redistribute<Stream>(layer_.forward(pass, input(std::move(x)), of(saved)));
    }
    Any backward_data(Pass<Exec>& pass, Any dy, SavedState& saved) const override {
        auto gradient = std::move(dy).template as<dual_t<Stream>>();
        return redistribute<dual_t<Stream>>(layer_.backward_data(
            pass, redistribute<dual_t<typename Layer::output_layout>>(std::move(gradient)), of(saved)));
    }
    void backward_weight(Pass<Exec>& pass, SavedState& saved) const override {
        layer_.backward_weight(pass, of(saved));
    }
    void for_each_parameter(ParameterVisitor<T, Exec> const& visit) override { layer_.for_each_parameter(visit); }
    [[nodiscard]] bool continues_sequences() const override {
        if constexpr (requires { layer_.continues_sequences(); })
            return layer_.continues_sequences();
        else
            return ContinuingLayerOn<Layer, Exec>;
    }
    Any continue_sequences(Pass<Exec>& pass, Any x) const override {
        if constexpr (ContinuingLayerOn<Layer, Exec>)
            return redistribute<Stream>(continued(layer_, pass, input(std::move(x))));
        else
            return StreamLayer<T, Exec>::continue_sequences(pass, std::move(x));
    }
    [[nodiscard]] observe::DecodingState decoding_state() const override {
        if constexpr (requires { layer_.decoding_state(); }) return layer_.decoding_state();
        return {};
    }
    [[nodiscard]] std::optional<RouterLoad> router_load() const override {
        if constexpr (requires { layer_.router_load(); }) return layer_.router_load();
        return {};
    }
    [[nodiscard]] ExpertPlacement<Exec>* expert_placement() override {
        if constexpr (requires { layer_.expert_placement(); }) return layer_.expert_placement();
        return nullptr;
    }
    [[nodiscard]] model::PieceSet pieces() const override {
        if constexpr (recomputes) return layer_.pieces();
        return {};
    }
    void recompute(model::PieceSet pieces) override {
        if constexpr (recomputes) layer_.recompute(pieces);
    }
    void restore_input(Any x, SavedState& saved) const override {
        if constexpr (recomputes) layer_.restore_input(input(std::move(x)), of(saved));
    }
    Any output_again(Pass<Exec>& pass, SavedState& saved) const override {
        if constexpr (requires { layer_.output_again(pass, of(saved)); })
            return redistribute<Stream>(layer_.output_again(pass, of(saved)));
        else
            return StreamLayer<T, Exec>::output_again(pass, saved);
    }

  private:
    static constexpr bool recomputes = RecomputingLayerOn<Layer, Exec>;

    struct Saved final : SavedState {
        typename Layer::Saved of{};
        void clear() override { of = {}; }
    };
    static typename Layer::Saved& of(SavedState& saved) { return static_cast<Saved&>(saved).of; }
    static Tensor<typename Layer::input_layout, Exec> input(Any x) {
        return redistribute<typename Layer::input_layout>(std::move(x).template as<Stream>());
    }

    Layer layer_;
};

} // namespace pentad
