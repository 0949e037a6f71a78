// expect: pentad: the axes of a second view have tags with `views = 2`
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/fold.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
constexpr auto mesh = fold(Mesh<Axis<dp, 4>>(), Mesh<Axis<cp, 2>, Axis<ep, 2>>());
#else
constexpr auto mesh = fold(Mesh<Axis<dp, 4>>(), Mesh<Axis<edp, 2>, Axis<ep, 2>>());
#endif
