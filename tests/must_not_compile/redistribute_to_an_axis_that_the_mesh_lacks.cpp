// expect: pentad: the layout names an axis that the mesh does not have: f32\[batch@dp:\?, seq@cp:\?\]
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/redistribute.hpp>

using namespace pentad;
using namespace pentad::ml;

using Exec = Kokkos::DefaultHostExecutionSpace;
using OnMesh = MeshContext<Mesh<Axis<dp, 2>, Axis<tp, 2>>, Exec>;
using Whole = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<seq>>>;
template <class A>
using Cut = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, A>>>;
#ifdef PENTAD_WRONG
auto cut(OnMesh const& context) { return redistribute<Cut<cp>>(make_tensor<Whole>(context, {8, 16})); }
#else
auto cut(OnMesh const& context) { return redistribute<Cut<tp>>(make_tensor<Whole>(context, {8, 16})); }
#endif
