// expect: pentad: a mesh has at least one axis
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
constexpr Mesh<> mesh;
#else
constexpr Mesh<Axis<dp>> mesh{2};
#endif
