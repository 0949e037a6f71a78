// expect: pentad: the output dimension of the weight is sharded over an axis over which the input is not replicated
// expect: f32\[seq:\?, hidden:\?\] times f32\[ffn@tp:\?, hidden:\?\]
#include <pentad/layers/contract.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using X = Layout<f32, Dims<Dim<seq>, Dim<hidden>>>;
using W = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>;
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
#else
using X = Layout<f32, Dims<Dim<seq>, Dim<hidden>>, Replicated<tp>>;
using W = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>;
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
#endif
