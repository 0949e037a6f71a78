// expect: pentad: the layout names an axis that the mesh does not have: f32\[batch@dp:\?, seq@cp:\?\]
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/tensor.hpp>

using namespace pentad;
using namespace pentad::ml;

using Exec = Kokkos::DefaultHostExecutionSpace;
template <class A>
using Tokens = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, A>>>;
auto make(MeshContext<Mesh<Axis<dp, 2>, Axis<tp, 2>>, Exec> const& context) {
#ifdef PENTAD_WRONG
    return make_tensor<Tokens<cp>>(context, {8, 16});
#else
    return make_tensor<Tokens<tp>>(context, {8, 16});
#endif
}
