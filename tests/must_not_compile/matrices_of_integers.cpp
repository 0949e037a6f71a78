// expect: pentad: products are of f64, f32 and bf16
#include <pentad/layout/ml.hpp>
#include <pentad/product/roles.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using T = i32;
#else
using T = bf16;
#endif
using A = Layout<T, Dims<Dim<batch>, Dim<hidden>>>;
using B = Layout<T, Dims<Dim<hidden>, Dim<vocab>>>;
using C = Layout<T, Dims<Dim<batch>, Dim<vocab>>>;
constexpr auto allowed = (require_product<C, A, B>(), true);
