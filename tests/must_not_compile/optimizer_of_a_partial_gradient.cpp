// expect: pentad: a gradient that is still partial cannot be given to the optimizer
// expect: from f32\[flat:\?\]\{dp\.cp: partial\} to f32\[flat@dp\.cp:\?\]
#include <pentad/layout/ml.hpp>
#include <pentad/zero/optimizer.hpp>

using namespace pentad;
using namespace pentad::ml;

using Exec = Kokkos::DefaultHostExecutionSpace;
using State = Layout<f32, Dims<Dim<flat, dynamic, dp, cp>>>;
#ifdef PENTAD_WRONG
using Gradient = Layout<f32, Dims<Dim<flat>>, Partial<dp, cp>>;
#else
using Gradient = State;
#endif
void update(zero::Optimizer<State, f32, Exec>& optimizer, Tensor<State, Exec> const& weights,
            Tensor<Gradient, Exec> const& gradient) {
    optimizer.update(weights, gradient, 1, {}, weights.size());
}
