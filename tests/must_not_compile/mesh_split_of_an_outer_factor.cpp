// expect: pentad: only an axis and its inner factor are split
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>

using namespace pentad;
using namespace pentad::ml;

constexpr Mesh<Axis<dp>, Axis<tp>> mesh(2, 4);
#ifdef PENTAD_WRONG
constexpr auto split = mesh.split<tp>(2).split<outer<tp>>(2);
#else
constexpr auto split = mesh.split<tp>(2).split<inner<tp>>(2);
#endif
