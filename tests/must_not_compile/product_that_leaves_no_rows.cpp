// expect: pentad: the input has no dimensions beside those that the weight takes
// expect: f32\[hidden:\?\] times f32\[ffn:\?, hidden:\?\]
#include <pentad/layers/contract.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

using W = Layout<f32, Dims<Dim<ffn>, Dim<hidden>>>;
#ifdef PENTAD_WRONG
using X = Layout<f32, Dims<Dim<hidden>>>;
#else
using X = Layout<f32, Dims<Dim<seq>, Dim<hidden>>>;
#endif
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
