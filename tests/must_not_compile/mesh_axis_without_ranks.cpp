// expect: pentad: the extent of a mesh axis is at least 1
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
constexpr Mesh<Axis<dp, 0>> mesh;
#else
constexpr Mesh<Axis<dp, 1>> mesh;
#endif
