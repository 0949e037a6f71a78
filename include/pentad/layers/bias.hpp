// A bias behind a layer whose products give summands: it is added where these have been summed, on the stream.
#pragma once

#include <pentad/kernels/bias.hpp>
#include <pentad/layers/stream_layer.hpp>

#include <memory>
#include <string>
#include <utility>

namespace pentad {

/// y = layer(x) + bias.
template <class Stream, class Exec>
class BiasedLayer final : public StreamLayer<typename Stream::element, Exec> {
  public:
    using T = typename Stream::element;
    using Any = AnyTensor<T, Exec>;
    using Vector = last_dimension_t<Stream>;

    /// @param name of the bias
    BiasedLayer(std::unique_ptr<StreamLayer<T, Exec>> layer, LayerSetup<Exec> const& setup, std::string const& name)
        : layer_(std::move(layer)), bias_(setup.context, name, {setup.hidden}, {.deviation = 0}) {}

    [[nodiscard]] LayoutValue const& stream() const override { return Stream::value; }
    [[nodiscard]] std::unique_ptr<SavedState> make_saved() const override {
        return std::make_unique<Saved>(layer_->make_saved());
    }
    Any forward(Pass<Exec>& pass, Any x, SavedState& saved) const override {
        auto y = layer_->forward(pass, std::move(x), *of(saved).inner);
        kernels::add_bias<T>(pass.context.exec(), bias_.value().flat(), y.rows());
        return y;
    }
    Any backward_data(Pass<Exec>& pass, Any dy, SavedState& saved) const override {
        of(saved).dy = dy;
        return layer_->backward_data(pass, std::move(dy), *of(saved).inner);
    }
    void backward_weight(Pass<Exec>& pass, SavedState& saved) const override {
        kernels::add_bias_gradient<T>(pass.context.exec(), of(saved).dy.rows(), bias_.gradient().array_flat());
        of(saved).dy = {};
        layer_->backward_weight(pass, *of(saved).inner);
    }
    void for_each_parameter(ParameterVisitor<T, Exec> const& visit) override {
        layer_->for_each_parameter(visit);
        visit(bias_);
    }
    [[nodiscard]] bool continues_sequences() const override { return layer_->continues_sequences(); }
    Any continue_sequences(Pass<Exec>& pass, Any x) const override {
        auto y = layer_->continue_sequences(pass, std::move(x));
        kernels::add_bias<T>(pass.context.exec(), bias_.value().flat(), y.rows());
        return y;
    }
    [[nodiscard]] observe::DecodingState decoding_state() const override { return layer_->decoding_state(); }
    [[nodiscard]] model::PieceSet pieces() const override { return layer_->pieces(); }
    void recompute(model::PieceSet pieces) override { layer_->recompute(pieces); }
    void restore_input(Any x, SavedState& saved) const override {
        layer_->restore_input(std::move(x), *of(saved).inner);
    }

  private:
    struct Saved final : SavedState {
        explicit Saved(std::unique_ptr<SavedState> state) : inner(std::move(state)) {}
        void clear() override {
            inner->clear();
            dy = {};
        }
        std::unique_ptr<SavedState> inner;
        Any dy;
    };
    static Saved& of(SavedState& saved) { return static_cast<Saved&>(saved); }

    std::unique_ptr<StreamLayer<T, Exec>> layer_;
    Parameter<Vector, used_t<Vector, Stream>, Exec> bias_;
};

} // namespace pentad
