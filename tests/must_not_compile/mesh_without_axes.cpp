// expect: pentad: a mesh has at least one axis
#include <pentad/mesh/mesh.hpp>

using namespace pentad;

#ifdef PENTAD_WRONG
constexpr Mesh<> mesh;
#else
constexpr Mesh<Axis<dp>> mesh{2};
#endif
