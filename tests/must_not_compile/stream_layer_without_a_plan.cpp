// expect: keeps the names and the order of the dimensions: from f32\[seq@cp:\?, ffn:\?\] to f32\[seq@cp:\?, hidden:\?\]
#include "map.hpp"

#include <pentad/layers/stream_layer.hpp>

using Exec = Kokkos::DefaultHostExecutionSpace;
#ifdef PENTAD_WRONG
using Layer = Map<hidden, ffn>::on<Stream, Exec>;
#else
using Layer = Sequential<Map<hidden, ffn>, Map<ffn, hidden>>::on<Stream, Exec>;
#endif
constexpr auto size = sizeof(AsStreamLayer<Layer, Stream, Exec>);
