// The layers of the parts that the library describes, for the registry of a model.
#pragma once

#include <pentad/context/selected.hpp>
#include <pentad/experts/layer.hpp>
#include <pentad/layers/attention.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/model/parts.hpp>

namespace pentad::train {

/// Attention, gated and plain MLPs and experts, with their collectives overlapped where that helps.
template <class Stream, class Exec>
LayerRegistry<Stream, Exec> decoder_layers() {
    LayerRegistry<Stream, Exec> registry;
    registry.template add<model::Attention, Attention<context::Selected, Overlap<4>>>()
        .template add<model::GatedMlp, GatedMlp<Overlap<4>>>()
        .template add<model::PlainMlp, PlainMlp<Overlap<4>>>()
        .template add<model::Experts, experts::Layer>();
    return registry;
}

#if PENTAD_COMPILED_DECODER_LAYERS // with the target pentad::decoder_layers, which has these compiled
namespace detail {
template <class T>
using InvariantLayers = LayerRegistry<InvariantStream<T>, Kokkos::DefaultExecutionSpace>;
template <class T>
using SequenceLayers = LayerRegistry<SequenceStream<T>, Kokkos::DefaultExecutionSpace>;
} // namespace detail
extern template detail::InvariantLayers<f64> decoder_layers();
extern template detail::SequenceLayers<f64> decoder_layers();
extern template detail::InvariantLayers<f32> decoder_layers();
extern template detail::SequenceLayers<f32> decoder_layers();
extern template detail::InvariantLayers<bf16> decoder_layers();
extern template detail::SequenceLayers<bf16> decoder_layers();
#endif

} // namespace pentad::train
