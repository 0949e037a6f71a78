// expect: pentad: a partial log-sum-exp is of f64, f32 or bf16
#include <pentad/layout/layout.hpp>

using namespace pentad;

#ifdef PENTAD_WRONG
using Element = i32;
#else
using Element = f32;
#endif
constexpr auto rank = Layout<Element, Dims<Dim<token>>, PartialLogSumExp<tp>>::rank;
