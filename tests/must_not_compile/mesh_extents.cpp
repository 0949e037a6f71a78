// expect: pentad: a mesh takes one number for each axis whose extent is dynamic
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
constexpr Mesh<Axis<dp>, Axis<tp, 4>> mesh(2, 4);
#else
constexpr Mesh<Axis<dp>, Axis<tp, 4>> mesh(2);
#endif
