// The streams whose layers the target pentad::decoder_layers has compiled (lib/).
#pragma once

/// f(stream) for each of them. A header that declares something for all of them as `extern template` does so where
/// PENTAD_COMPILED_DECODER_LAYERS says that the target is linked.
#define PENTAD_FOR_EACH_COMPILED_STREAM(f)                                                                             \
    f(InvariantStream<f64>) f(SequenceStream<f64>) f(GridStream<f64>) f(CubeStream<f64>) f(InvariantStream<f32>)       \
        f(SequenceStream<f32>) f(GridStream<f32>) f(CubeStream<f32>) f(InvariantStream<bf16>) f(SequenceStream<bf16>)  \
            f(GridStream<bf16>) f(CubeStream<bf16>)
