// expect: pentad: this mesh has no such axis
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/context.hpp>

using namespace pentad;
using namespace pentad::ml;

using Exec = Kokkos::DefaultHostExecutionSpace;
int place(MeshContext<Mesh<Axis<dp, 2>, Axis<tp, 2>>, Exec> const& context) {
#ifdef PENTAD_WRONG
    return context.along<cp>().rank();
#else
    return context.along<tp>().rank() + context.coordinate<dp>() + context.extent<dp>();
#endif
}
