// expect: pentad: the gradient does not have the layout of the optimizer state
// expect: f32\[flat:\?\] is not f32\[flat@dp\.cp:\?\]
#include <pentad/layout/ml.hpp>
#include <pentad/zero/layouts.hpp>
#include <pentad/zero/optimizer.hpp>

using namespace pentad;
using namespace pentad::ml;

using Exec = Kokkos::DefaultHostExecutionSpace;
using State = Layout<f32, Dims<Dim<flat, dynamic, dp, cp>>>;
#ifdef PENTAD_WRONG
using Gradient = zero::Whole<f32>;
#else
using Gradient = State;
#endif
void update(zero::Optimizer<State, f32, Exec>& optimizer, Tensor<State, Exec> const& weights,
            Tensor<Gradient, Exec> const& gradient) {
    optimizer.update(weights, gradient, 1, {}, weights.size());
}
