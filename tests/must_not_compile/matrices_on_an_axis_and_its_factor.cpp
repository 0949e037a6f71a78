// expect: pentad: one layout of a product names an axis and another a factor of it
#include <pentad/layout/ml.hpp>
#include <pentad/product/roles.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using B = Layout<f64, Dims<Dim<hidden, dynamic, inner<tp>>, Dim<vocab>>>;
#else
using B = Layout<f64, Dims<Dim<hidden, dynamic, tp>, Dim<vocab>>>;
#endif
using A = Layout<f64, Dims<Dim<batch, dynamic, tp>, Dim<hidden>>>;
using C = Layout<f64, Dims<Dim<batch>, Dim<vocab>>>;
constexpr auto allowed = (require_product<C, A, B>(), true);
