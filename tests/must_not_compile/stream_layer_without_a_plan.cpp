// expect: keeps the names and the order of the dimensions: from f32\[seq@cp:\?, ffn:\?\] to f32\[seq@cp:\?, hidden:\?\]
#include <pentad/layers/stream_layer.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

using Exec = Kokkos::DefaultHostExecutionSpace;
using Stream = Layout<f32, Dims<Dim<seq, dynamic, cp>, Dim<hidden>>>;

template <class Gives>
struct Layer {
    using input_layout = Stream;
    using output_layout = Gives;
    struct Saved {};
    Tensor<Gives, Exec> forward(Pass<Exec>&, Tensor<Stream, Exec>, Saved&) const;
    Tensor<dual_t<Stream>, Exec> backward_data(Pass<Exec>&, Tensor<dual_t<Gives>, Exec>, Saved&) const;
    void backward_weight(Pass<Exec>&, Saved&) const;
    void for_each_parameter(ParameterVisitor<f32, Exec> const&);
};

#ifdef PENTAD_WRONG
using Gives = with_last_dim_t<Stream, Dim<ffn>>;
#else
using Gives = Stream;
#endif
constexpr auto size = sizeof(AsStreamLayer<Layer<Gives>, Stream, Exec>);
