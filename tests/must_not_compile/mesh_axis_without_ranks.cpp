// expect: pentad: the extent of a mesh axis is at least 1
#include <pentad/mesh/mesh.hpp>

using namespace pentad;

#ifdef PENTAD_WRONG
constexpr Mesh<Axis<dp, 0>> mesh;
#else
constexpr Mesh<Axis<dp, 1>> mesh;
#endif
