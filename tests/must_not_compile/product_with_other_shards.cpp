// expect: pentad: the input dimension of the weight is sharded over axes over which the input is not
// expect: f32\[seq:\?, ffn:\?\] times f32\[hidden:\?, ffn@tp:\?\]
#include <pentad/layers/contract.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using X = Layout<f32, Dims<Dim<seq>, Dim<ffn>>>;
using W = Layout<f32, Dims<Dim<hidden>, Dim<ffn, dynamic, tp>>>;
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
#else
using X = Layout<f32, Dims<Dim<seq>, Dim<hidden>>, Replicated<tp>>;
using W = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>;
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
#endif
