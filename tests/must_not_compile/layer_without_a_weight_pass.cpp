// expect: a layer has backward_weight\(Pass&, Saved&\) const
#include <pentad/layers/stream_layer.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

using Exec = Kokkos::DefaultHostExecutionSpace;
using Stream = Layout<f32, Dims<Dim<seq, dynamic, cp>, Dim<hidden>>>;

struct Halved {
    using input_layout = Stream;
    using output_layout = Stream;
    struct Saved {};
    Tensor<Stream, Exec> forward(Pass<Exec>&, Tensor<Stream, Exec>, Saved&) const;
    Tensor<dual_t<Stream>, Exec> backward_data(Pass<Exec>&, Tensor<dual_t<Stream>, Exec>, Saved&) const;
#ifndef PENTAD_WRONG
    void backward_weight(Pass<Exec>&, Saved&) const;
#endif
    void for_each_parameter(ParameterVisitor<f32, Exec> const&);
};
constexpr auto size = sizeof(AsStreamLayer<Halved, Stream, Exec>);
