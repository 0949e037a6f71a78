// expect: pentad: a layout names axes of one view of the mesh
#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

template <class A>
using Rows = Layout<f32, Dims<Dim<expert, dynamic, ep>, Dim<token, dynamic, A>, Dim<hidden>>>;
#ifdef PENTAD_WRONG
constexpr auto rank = Rows<dp>::value.rank; // ep is part of dp, or dp of ep
#else
constexpr auto rank = Rows<edp>::value.rank;
#endif
