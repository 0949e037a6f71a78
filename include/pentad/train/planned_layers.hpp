// The layers that a plan is made from: those of decoder_layers(), and those that can be planned only.
#pragma once

#include <pentad/layers/latent_attention.hpp>
#include <pentad/layers/mamba2.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/train/decoder_layers.hpp>

namespace pentad::train {

template <class Stream, class Exec>
LayerRegistry<Stream, Exec> planned_layers() {
    auto registry = decoder_layers<Stream, Exec>();
    registry.template add<model::LatentAttention, LatentAttention>().template add<model::Mamba2, Mamba2>();
    return registry;
}

#if PENTAD_COMPILED_DECODER_LAYERS
extern template detail::InvariantLayers<f64> planned_layers();
extern template detail::SequenceLayers<f64> planned_layers();
extern template detail::InvariantLayers<f32> planned_layers();
extern template detail::SequenceLayers<f32> planned_layers();
extern template detail::InvariantLayers<bf16> planned_layers();
extern template detail::SequenceLayers<bf16> planned_layers();
#endif

} // namespace pentad::train
