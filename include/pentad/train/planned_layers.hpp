// The layers that a plan is made from: those of decoder_layers(), and those that can be planned only.
#pragma once

#include <pentad/layers/latent_attention.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/detail/compiled_streams.hpp>

namespace pentad::train {

template <class Stream, class Exec>
LayerRegistry<Stream, Exec> planned_layers() {
    auto registry = decoder_layers<Stream, Exec>();
    if constexpr (!StreamOnGrid<Stream>) registry.template add<model::LatentAttention, LatentAttention>();
    return registry;
}

#if PENTAD_COMPILED_DECODER_LAYERS
#define PENTAD_COMPILED(Stream) extern template LayerRegistry<Stream, Kokkos::DefaultExecutionSpace> planned_layers();
PENTAD_FOR_EACH_COMPILED_STREAM(PENTAD_COMPILED)
#undef PENTAD_COMPILED
#endif

} // namespace pentad::train
