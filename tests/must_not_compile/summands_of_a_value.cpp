// expect: pentad: this value is not partial: read it by view\(\)
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/tensor.hpp>

using namespace pentad;
using namespace pentad::ml;

using Value = Layout<f64, Dims<Dim<batch>>>;
inline auto read(Tensor<Value> const& x) {
#ifdef PENTAD_WRONG
    return x.summands();
#else
    return x.view();
#endif
}
