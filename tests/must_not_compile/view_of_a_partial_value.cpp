// expect: pentad: each rank holds a summand of this value: reduce it first, or read the summands by summands\(\)
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/tensor.hpp>

using namespace pentad;
using namespace pentad::ml;

using Summands = Layout<f64, Dims<Dim<batch>>, Partial<tp>>;
inline auto read(Tensor<Summands> const& x) {
#ifdef PENTAD_WRONG
    return x.view();
#else
    return x.summands();
#endif
}
