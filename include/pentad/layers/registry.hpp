// Which layer computes which described part on which stream: a table from the type of the description and the layout of
// the stream to a maker. It is a value that a model is given, so that a user's own parts stand beside those of the
// library.
#pragma once

#include <pentad/layers/bias.hpp>
#include <pentad/layers/layer_norm.hpp>
#include <pentad/layers/rms_norm.hpp>
#include <pentad/layers/stream_ends.hpp>
#include <pentad/layers/stream_layer.hpp>
#include <pentad/layout/streams.hpp>
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
#include <vector>

namespace pentad {

template <class T, class Exec>
class LayerRegistry {
  public:
    using Made = std::unique_ptr<StreamLayer<T, Exec>>;
    using Maker = std::function<Made(LayerSetup<Exec> const&, model::Part const&, std::string const& name)>;

    /// Parts described by a `Described` are computed by Layer::on<Stream, Exec>(setup, described, name), on each of
    /// these streams; where none is given, on those of tensor parallelism in one dimension.
    template <model::Describes Described, class Layer, class... Streams>
    LayerRegistry& add() {
        if constexpr (sizeof...(Streams) == 0)
            return add<Described, Layer, InvariantStream<T>, SequenceStream<T>>();
        else
            return (add<Described, Streams>(&make_layer<Layer, Described, Streams>), ..., *this);
    }
    /// Parts described by a `Described` are made by `maker` on one stream; it may be compiled in another unit.
    template <model::Describes Described, class Stream>
    LayerRegistry& add(Maker maker) {
        auto& on = on_stream<Stream>();
        on.makers[typeid(Described)] = std::move(maker);
        return *this;
    }
    /// The ends of models on a stream, which a LanguageModel needs beside the layers of its blocks.
    template <class Stream>
    LayerRegistry& add_ends() {
        on_stream<Stream>().ends = std::make_shared<EndsOn<Stream, Exec>>();
        return *this;
    }
    /// The maker that add<Described, Layer, Stream>() registers, as a function that a unit can instantiate by itself.
    template <class Layer, class Described, class Stream>
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
    [[nodiscard]] std::size_t size(LayoutValue const& stream) const {
        auto const* const on = find(stream);
        return on == nullptr ? 0 : on->makers.size();
    }
    [[nodiscard]] bool contains(LayoutValue const& stream, model::Part const& part) const {
        auto const* const on = find(stream);
        return on != nullptr && on->makers.contains(part.type());
    }
    /// The layer for a part. May be collective, over the groups of the axes that the layer communicates along.
    /// @throws std::invalid_argument where no layer for it was added on this stream
    /// @throws std::logic_error where its maker gives a layer of another stream
    [[nodiscard]] Made make(LayerSetup<Exec> const& setup, LayoutValue const& stream, model::Part const& part,
                            std::string const& name) const {
        if (auto const* const on = find(stream))
            if (auto const maker = on->makers.find(part.type()); maker != on->makers.end()) {
                auto made = maker->second(setup, part, name);
                if (!(made->stream() == stream))
                    throw std::logic_error("the layer of " + name + " is on the stream " + to_string(made->stream()) +
                                           ", and was asked for on " + to_string(stream));
                return made;
            }
        throw std::invalid_argument("there is no layer for the part '" + std::string(part.kind()) + "' of " + name +
                                    " on the stream " + to_string(stream) + ": add one to the registry");
    }
    /// @throws std::invalid_argument where it has neither layers nor ends on this stream
    [[nodiscard]] Made make_norm(LayerSetup<Exec> const& setup, LayoutValue const& stream, model::NormKind kind,
                                 std::string const& name) const {
        auto const* const on = find(stream);
        if (on == nullptr) refuse_stream("there are no layers", stream);
        return on->make_norm(setup, kind, name);
    }
    /// @throws std::invalid_argument where none were added
    [[nodiscard]] StreamEnds<T, Exec> const& ends(LayoutValue const& stream) const {
        auto const* const on = find(stream);
        if (on == nullptr || on->ends == nullptr) refuse_stream("there are no embeddings and no head", stream);
        return *on->ends;
    }

  private:
    struct OnStream {
        LayoutValue const* stream;
        Made (*make_norm)(LayerSetup<Exec> const&, model::NormKind, std::string const& name);
        std::map<std::type_index, Maker> makers{};
        std::shared_ptr<StreamEnds<T, Exec> const> ends{};
    };

    [[noreturn]] static void refuse_stream(std::string const& what, LayoutValue const& stream) {
        throw std::invalid_argument(what + " on the stream " + to_string(stream) + ": add them to the registry");
    }
    [[nodiscard]] OnStream const* find(LayoutValue const& stream) const {
        for (auto const& on : streams_)
            if (on.stream == &stream || *on.stream == stream) return &on;
        return nullptr;
    }
    template <class Stream>
    OnStream& on_stream() {
        if (auto const* const found = find(Stream::value))
            return streams_[static_cast<std::size_t>(found - streams_.data())];
        return streams_.emplace_back(OnStream{&Stream::value, &make_norm_on<Stream>});
    }
    template <class Stream>
    static Made make_norm_on(LayerSetup<Exec> const& setup, model::NormKind kind, std::string const& name) {
        using Rms = RmsNorm::on<Stream, Exec>;
        using Centred = LayerNorm::on<Stream, Exec>;
        if (kind == model::NormKind::layer)
            return std::make_unique<AsStreamLayer<Centred, Stream, Exec>>(Centred(setup, name));
        return std::make_unique<AsStreamLayer<Rms, Stream, Exec>>(Rms(setup, name));
    }

    std::vector<OnStream> streams_;
};

} // namespace pentad
