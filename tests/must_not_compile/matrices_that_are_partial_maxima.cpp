// expect: pentad: a partial maximum, minimum or log-sum-exp is neither multiplied nor made by a product
#include <pentad/layout/ml.hpp>
#include <pentad/product/roles.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using A = Layout<f64, Dims<Dim<batch>, Dim<hidden>>, PartialMax<tp>>;
#else
using A = Layout<f64, Dims<Dim<batch>, Dim<hidden>>, Partial<tp>>;
#endif
using B = Layout<f64, Dims<Dim<hidden>, Dim<vocab>>>;
using C = Layout<f64, Dims<Dim<batch>, Dim<vocab>>>;
constexpr auto allowed = (require_product<C, A, B>(), true);
