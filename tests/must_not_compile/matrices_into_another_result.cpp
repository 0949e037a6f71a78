// expect: pentad: no product: both factors have the dimension that is summed
#include <pentad/layout/ml.hpp>
#include <pentad/product.hpp>

using namespace pentad;
using namespace pentad::ml;

using A = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<hidden>>>;
using B = Layout<f64, Dims<Dim<hidden>, Dim<vocab>>>;
#ifdef PENTAD_WRONG
using C = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<hidden>>>;
#else
using C = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<vocab>>>;
#endif
void add(Tensor<C> const& c, Tensor<A> const& a, Tensor<B> const& b) { multiply_into(c, a, b); }
