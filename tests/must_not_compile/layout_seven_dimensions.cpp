// expect: pentad: a layout has at most six dimensions
#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
constexpr auto rank =
    Layout<f32, Dims<Dim<batch>, Dim<seq>, Dim<heads>, Dim<head_dim>, Dim<ffn>, Dim<vocab>, Dim<token>>>::rank;
#else
constexpr auto rank = Layout<f32, Dims<Dim<batch>, Dim<seq>, Dim<heads>, Dim<head_dim>, Dim<ffn>, Dim<vocab>>>::rank;
#endif
