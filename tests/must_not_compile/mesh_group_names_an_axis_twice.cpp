// expect: pentad: a group names each axis once
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>

using namespace pentad;
using namespace pentad::ml;

constexpr Mesh<Axis<dp>, Axis<tp>> mesh(2, 4);
#ifdef PENTAD_WRONG
constexpr int size = mesh.group_size<dp, dp>();
#else
constexpr int size = mesh.group_size<dp, tp>();
#endif
