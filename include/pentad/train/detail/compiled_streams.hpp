// What the target pentad::decoder_layers has compiled (lib/). A header that declares it as `extern template` does so
// where PENTAD_COMPILED_DECODER_LAYERS says that the target is linked.
#pragma once

#if PENTAD_LACKS_F64
#define PENTAD_OF_F64(...)
#else
#define PENTAD_OF_F64(...) __VA_ARGS__
#endif
#if PENTAD_LACKS_BF16
#define PENTAD_OF_BF16(...)
#else
#define PENTAD_OF_BF16(...) __VA_ARGS__
#endif

/// f(element) for each element of weights and activations, and f(stream) for each stream.
#define PENTAD_FOR_EACH_COMPILED_ELEMENT(f) PENTAD_OF_F64(f(f64)) f(f32) PENTAD_OF_BF16(f(bf16))
#define PENTAD_COMPILED_STREAMS_OF(f, T) f(InvariantStream<T>) f(SequenceStream<T>) f(GridStream<T>) f(CubeStream<T>)
#define PENTAD_FOR_EACH_COMPILED_STREAM(f)                                                                             \
    PENTAD_OF_F64(PENTAD_COMPILED_STREAMS_OF(f, f64))                                                                  \
    PENTAD_COMPILED_STREAMS_OF(f, f32) PENTAD_OF_BF16(PENTAD_COMPILED_STREAMS_OF(f, bf16))
