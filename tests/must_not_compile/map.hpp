// A layer that maps the last dimension of a stream from one to another: what programs here put together.
#pragma once

#include <pentad/layers/sequential.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

template <class From, class To>
struct Map {
    template <class Stream, class Exec>
    struct on {
        using input_layout = with_last_dim_t<Stream, Dim<From>>;
        using output_layout = with_last_dim_t<Stream, Dim<To>>;
        struct Saved {};
        Tensor<output_layout, Exec> forward(Pass<Exec>&, Tensor<input_layout, Exec>, Saved&) const;
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>&, Tensor<dual_t<output_layout>, Exec>,
                                                         Saved&) const;
        void backward_weight(Pass<Exec>&, Saved&) const;
        template <class F>
        void for_each_parameter(F&&);
    };
};

using Stream = Layout<f32, Dims<Dim<seq, dynamic, cp>, Dim<hidden>>>;
template <class Layer>
constexpr std::size_t bytes = sizeof(typename Layer::template on<Stream, Kokkos::DefaultHostExecutionSpace>);
