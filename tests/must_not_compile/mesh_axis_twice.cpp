// expect: pentad: a mesh names each axis once
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
constexpr Mesh<Axis<dp>, Axis<dp>> mesh(2, 2);
#else
constexpr Mesh<Axis<dp>, Axis<tp>> mesh(2, 2);
#endif
