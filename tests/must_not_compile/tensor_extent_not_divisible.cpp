// expect: pentad: heads = 6 is not divisible by tp = 4: change the extent or the mesh
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/tensor.hpp>

using namespace pentad;
using namespace pentad::ml;

using Exec = Kokkos::DefaultHostExecutionSpace;
template <std::size_t Heads>
using Query = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<heads, Heads, tp>>>;
auto make(MeshContext<Mesh<Axis<dp>, Axis<tp, 4>>, Exec> const& context) {
#ifdef PENTAD_WRONG
    return make_tensor<Query<6>>(context, {8, 6});
#else
    return make_tensor<Query<8>>(context, {8, 8});
#endif
}
