// expect: pentad: one coordinate for each axis of the mesh
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>

using namespace pentad;
using namespace pentad::ml;

constexpr Mesh<Axis<dp>, Axis<tp>> mesh(2, 4);
#ifdef PENTAD_WRONG
constexpr int rank = mesh.rank_at(1);
#else
constexpr int rank = mesh.rank_at(1, 3);
#endif
