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

/// Adds the layers of the library on a stream: attention, latent attention, Mamba-2, linear attention, gated and plain
/// MLPs and experts, with their collectives overlapped where that helps, and the ends of models. On a grid of tensor
/// parallelism: attention, MLPs and the ends.
template <class Stream, class Exec>
void add_decoder_layers(LayerRegistry<typename Stream::element, Exec>& registry) {
    registry.template add_ends<Stream>()
        .template add<model::GatedMlp, GatedMlp<Overlap<4>>, Stream>()
        .template add<model::PlainMlp, PlainMlp<Overlap<4>>, Stream>();
    if constexpr (StreamOnGrid<Stream>) {
        registry.template add<model::Attention, Attention<context::Selected, Overlap<4>>, Stream>();
    } else {
        registry.template add<model::Attention, Attention<context::Selected, Overlap<4>, ChosenHeads>, Stream>()
            .template add<model::LatentAttention, LatentAttention<context::WholeKeys, Overlap<4>, ChosenHeads>,
                          Stream>()
            .template add<model::Mamba2, Mamba2<context::Recurrence, Overlap<4>>, Stream>()
            .template add<model::LinearAttention, LinearAttention<context::Recurrence, Overlap<4>>, Stream>()
            .template add<model::Experts, experts::Layer<Overlap<8>>, Stream>();
    }
}

/// The layers of the library on its streams: in one dimension of tensor parallelism, with and without sequence
/// parallelism, and on grids.
template <class T, class Exec>
LayerRegistry<T, Exec> decoder_layers() {
    LayerRegistry<T, Exec> registry;
    add_decoder_layers<InvariantStream<T>, Exec>(registry);
    add_decoder_layers<SequenceStream<T>, Exec>(registry);
    add_decoder_layers<GridStream<T>, Exec>(registry);
    add_decoder_layers<CubeStream<T>, Exec>(registry);
    return registry;
}

#if PENTAD_COMPILED_DECODER_LAYERS
#define PENTAD_COMPILED(Stream)                                                                                        \
    extern template void add_decoder_layers<Stream>(                                                                   \
        LayerRegistry<typename Stream::element, Kokkos::DefaultExecutionSpace>&);
PENTAD_FOR_EACH_COMPILED_STREAM(PENTAD_COMPILED)
#undef PENTAD_COMPILED
#endif

} // namespace pentad::train
