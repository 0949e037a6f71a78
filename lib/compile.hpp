// What pentad::decoder_layers compiles for a stream.
#pragma once

#include <pentad/train/dry_parts.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/train/trainer.hpp>

#define PENTAD_COMPILE_DECODER_LAYERS(Stream)                                                                          \
    namespace pentad {                                                                                                 \
    template LayerRegistry<Stream, Kokkos::DefaultExecutionSpace> train::decoder_layers();                             \
    template class train::LanguageModel<Stream, Kokkos::DefaultExecutionSpace>;                                        \
    template class train::Trainer<Stream, Kokkos::DefaultExecutionSpace>;                                              \
    template planner::PartAccounts train::dry_parts(model::Model const&,                                               \
                                                    LayerRegistry<Stream, Kokkos::DefaultExecutionSpace> const&,       \
                                                    std::vector<std::size_t> const&, planner::PartShape const&, bool);       \
    }
