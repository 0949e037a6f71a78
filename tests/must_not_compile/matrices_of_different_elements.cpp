// expect: pentad: the factors and the result of a product have different elements
#include <pentad/layout/ml.hpp>
#include <pentad/product/roles.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using B = Layout<f32, Dims<Dim<hidden>, Dim<vocab>>>;
#else
using B = Layout<f64, Dims<Dim<hidden>, Dim<vocab>>>;
#endif
using A = Layout<f64, Dims<Dim<batch>, Dim<hidden>>>;
using C = Layout<f64, Dims<Dim<batch>, Dim<vocab>>>;
constexpr auto allowed = (require_product<C, A, B>(), true);
