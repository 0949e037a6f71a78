// expect: pentad: a partial log-sum-exp is of f64, f32 or bf16
#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using Number = i32;
#else
using Number = f32;
#endif
constexpr auto rank = Layout<Number, Dims<Dim<token>>, PartialLogSumExp<tp>>::rank;
