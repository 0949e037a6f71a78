// expect: pentad: the layouts of a product give a dimension two different extents
// expect: f64\[batch:\?, hidden:8\] times f64\[hidden:16, vocab:\?\]
#include <pentad/layout/ml.hpp>
#include <pentad/product/roles.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using B = Layout<f64, Dims<Dim<hidden, 16>, Dim<vocab>>>;
#else
using B = Layout<f64, Dims<Dim<hidden, 8>, Dim<vocab>>>;
#endif
using A = Layout<f64, Dims<Dim<batch>, Dim<hidden, 8>>>;
using C = Layout<f64, Dims<Dim<batch>, Dim<vocab>>>;
constexpr auto allowed = (require_product<C, A, B>(), true);
