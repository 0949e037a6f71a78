// expect: pentad: a layout names each axis once
#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
constexpr auto rank = Layout<f32, Dims<Dim<kv_heads, 8, outer<tp>>>, Replicated<tp>>::rank;
#else
constexpr auto rank = Layout<f32, Dims<Dim<kv_heads, 8, outer<tp>>>, Replicated<inner<tp>>>::rank;
#endif
