// What pentad::decoder_layers compiles for a stream, and for an element.
#pragma once

#include <pentad/train/dry_parts.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/train/trainer.hpp>

#define PENTAD_COMPILE_DECODER_LAYERS(Stream)                                                                          \
    namespace pentad {                                                                                                 \
    template void                                                                                                      \
    train::add_decoder_layers<Stream>(LayerRegistry<typename Stream::element, Kokkos::DefaultExecutionSpace>&);        \
    }
#define PENTAD_COMPILE_TRAINER(T)                                                                                      \
    namespace pentad {                                                                                                 \
    template class train::LanguageModel<T, Kokkos::DefaultExecutionSpace>;                                             \
    template class train::Engine<T, Kokkos::DefaultExecutionSpace>;                                                    \
    template class train::Generator<T, Kokkos::DefaultExecutionSpace>;                                                 \
    template class train::Trainer<T, Kokkos::DefaultExecutionSpace>;                                                   \
    template planner::PartAccounts train::dry_parts(model::Model const&,                                               \
                                                    LayerRegistry<T, Kokkos::DefaultExecutionSpace> const&,            \
                                                    std::vector<std::size_t> const&, planner::PartShape const&,        \
                                                    planner::PerPart<bool> const&, bool);                              \
    }
