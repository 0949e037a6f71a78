// Which layer computes which described part: a table from the type of the description to a maker. It is a value that a
// model is given, so that a user's own parts stand beside those of the library.
#pragma once

#include <pentad/layers/bias.hpp>
#include <pentad/layers/layer_norm.hpp>
#include <pentad/layers/rms_norm.hpp>
#include <pentad/layers/stream_layer.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/part.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeindex>
#include <utility>

namespace pentad {

template <class Stream, class Exec>
class LayerRegistry {
  public:
    using Made = std::unique_ptr<StreamLayer<Stream, Exec>>;
    using Maker = std::function<Made(LayerSetup<Exec> const&, model::Part const&, std::string const& name)>;

    /// Parts described by a `Described` are computed by Layer::on<Stream, Exec>(setup, described, name).
    template <model::Describes Described, class Layer>
    LayerRegistry& add() {
        return add<Described>(&make_layer<Layer, Described>);
    }
    /// The same with a maker, which may be compiled in another unit.
    template <model::Describes Described>
    LayerRegistry& add(Maker maker) {
        makers_[typeid(Described)] = std::move(maker);
        return *this;
    }
    /// What add<Described, Layer>() registers, as a function that a unit can instantiate by itself.
    template <class Layer, class Described>
    static Made make_layer(LayerSetup<Exec> const& setup, model::Part const& part, std::string const& name) {
        using Of = typename Layer::template on<Stream, Exec>;
        auto const& described = *part.as<Described>();
        Made made = std::make_unique<AsStreamLayer<Of, Stream, Exec>>(Of(setup, described, name));
        if constexpr (requires { described.output_bias(); })
            if (std::string const bias(described.output_bias()); !bias.empty())
                made = std::make_unique<BiasedLayer<Stream, Exec>>(std::move(made), setup, name + bias);
        return made;
    }

    /// How many kinds of parts it has layers for, and whether that of this part is one of them.
    [[nodiscard]] std::size_t size() const { return makers_.size(); }
    [[nodiscard]] bool contains(model::Part const& part) const { return makers_.contains(part.type()); }
    /// The layer for a part. May be collective, over the groups of the axes that the layer communicates along.
    /// @throws std::invalid_argument where no layer for it was added
    [[nodiscard]] Made make(LayerSetup<Exec> const& setup, model::Part const& part, std::string const& name) const {
        auto const found = makers_.find(part.type());
        if (found == makers_.end())
            throw std::invalid_argument("there is no layer for the part '" + std::string(part.kind()) + "' of " + name +
                                        ": add one to the registry");
        return found->second(setup, part, name);
    }
    [[nodiscard]] Made make_norm(LayerSetup<Exec> const& setup, model::NormKind kind, std::string const& name) const {
        using Rms = RmsNorm::on<Stream, Exec>;
        using Centred = LayerNorm::on<Stream, Exec>;
        if (kind == model::NormKind::layer)
            return std::make_unique<AsStreamLayer<Centred, Stream, Exec>>(Centred(setup, name));
        return std::make_unique<AsStreamLayer<Rms, Stream, Exec>>(Rms(setup, name));
    }

  private:
    std::map<std::type_index, Maker> makers_;
};

} // namespace pentad
