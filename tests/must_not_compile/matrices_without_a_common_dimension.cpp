// expect: pentad: no product: both factors have the dimension that is summed
// expect: f64\[batch@dp:\?, hidden:\?\] times f64\[ffn:\?, vocab:\?\] to f64\[batch@dp:\?, vocab:\?\]
#include <pentad/layout/ml.hpp>
#include <pentad/product.hpp>

using namespace pentad;
using namespace pentad::ml;

using A = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<hidden>>>;
using C = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<vocab>>>;
#ifdef PENTAD_WRONG
using B = Layout<f64, Dims<Dim<ffn>, Dim<vocab>>>;
#else
using B = Layout<f64, Dims<Dim<hidden>, Dim<vocab>>>;
#endif
Tensor<C> product(Tensor<A> const& a, Tensor<B> const& b) { return multiply<C>(a, b); }
