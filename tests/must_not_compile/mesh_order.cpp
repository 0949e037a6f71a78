// expect: pentad: an order names every axis of the mesh once
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>

using namespace pentad;
using namespace pentad::ml;

constexpr Mesh<Axis<dp>, Axis<tp>> mesh(2, 4);
#ifdef PENTAD_WRONG
constexpr auto ordered = mesh.ordered<tp>();
#else
constexpr auto ordered = mesh.ordered<tp, dp>();
#endif
