// expect: pentad: a product is of matrices: give each layout two dimensions
#include <pentad/layout/ml.hpp>
#include <pentad/product/roles.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using A = Layout<f64, Dims<Dim<batch>, Dim<seq>, Dim<hidden>>>;
#else
using A = Layout<f64, Dims<Dim<batch>, Dim<hidden>>>;
#endif
using B = Layout<f64, Dims<Dim<hidden>, Dim<vocab>>>;
using C = Layout<f64, Dims<Dim<batch>, Dim<vocab>>>;
constexpr auto allowed = (require_product<C, A, B>(), true);
