// The layers of the parts that the library describes, for the registry of a model.
#pragma once

#include <pentad/context/recurrence.hpp>
#include <pentad/context/selected.hpp>
#include <pentad/context/whole_keys.hpp>
#include <pentad/experts/layer.hpp>
#include <pentad/layers/attention.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/latent_attention.hpp>
#include <pentad/layers/linear_attention.hpp>
#include <pentad/layers/mamba2.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/train/detail/compiled_streams.hpp>

namespace pentad::train {

namespace detail {
template <class Projection>
using Latent = LatentAttention<context::WholeKeys, Overlap<4>, Projection>;
} // namespace detail

/// Attention, latent attention, Mamba-2, linear attention, gated and plain MLPs and experts, with their collectives
/// overlapped where that helps. On a grid of tensor parallelism: attention and MLPs.
template <class Stream, class Exec>
LayerRegistry<Stream, Exec> decoder_layers() {
    LayerRegistry<Stream, Exec> registry;
    using Registry = LayerRegistry<Stream, Exec>;
    using Summed = Attention<context::Selected, Overlap<4>>;
    registry.template add<model::GatedMlp, GatedMlp<Overlap<4>>>()
        .template add<model::PlainMlp, PlainMlp<Overlap<4>>>();
    if constexpr (StreamOnGrid<Stream>) {
        registry.template add<model::Attention, Summed>();
        return registry;
    } else {
        using Exchanged = Attention<context::Selected, Overlap<4>, ExchangedHeads>;
        auto const attention = [](LayerSetup<Exec> const& setup, model::Part const& part, std::string const& name) {
            return setup.attention_output == model::AttentionOutput::all_to_all
                       ? Registry::template make_layer<Exchanged, model::Attention>(setup, part, name)
                       : Registry::template make_layer<Summed, model::Attention>(setup, part, name);
        };
        auto const latent = [](LayerSetup<Exec> const& setup, model::Part const& part, std::string const& name) {
            using model::AttentionOutput, model::LatentAttention;
            return setup.attention_output == AttentionOutput::all_to_all
                       ? Registry::template make_layer<detail::Latent<ExchangedHeads>, LatentAttention>(setup, part,
                                                                                                        name)
                       : Registry::template make_layer<detail::Latent<SummedHeads>, LatentAttention>(setup, part, name);
        };
        registry.template add<model::Attention>(attention)
            .template add<model::LatentAttention>(latent)
            .template add<model::Mamba2, Mamba2<context::Recurrence, Overlap<4>>>()
            .template add<model::LinearAttention, LinearAttention<context::Recurrence, Overlap<4>>>()
            .template add<model::Experts, experts::Layer<Overlap<8>>>();
        return registry;
    }
}

#if PENTAD_COMPILED_DECODER_LAYERS
#define PENTAD_COMPILED(Stream) extern template LayerRegistry<Stream, Kokkos::DefaultExecutionSpace> decoder_layers();
PENTAD_FOR_EACH_COMPILED_STREAM(PENTAD_COMPILED)
#undef PENTAD_COMPILED
#endif

} // namespace pentad::train
