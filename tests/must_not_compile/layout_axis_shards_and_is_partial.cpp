// expect: pentad: a layout names each axis once
#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
constexpr auto rank = Layout<f32, Dims<Dim<seq, 8, tp>>, Partial<tp>>::rank;
#else
constexpr auto rank = Layout<f32, Dims<Dim<seq, 8, cp>>, Partial<tp>>::rank;
#endif
