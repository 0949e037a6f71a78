// expect: pentad: the input and the weight of a linear layer have different elements
// expect: f64\[seq:\?, hidden:\?\]\{tp: replicated\} times f32\[ffn@tp:\?, hidden:\?\]
#include <pentad/layers/contract.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using X = Layout<f64, Dims<Dim<seq>, Dim<hidden>>, Replicated<tp>>;
using W = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>;
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
#else
using X = Layout<f32, Dims<Dim<seq>, Dim<hidden>>, Replicated<tp>>;
using W = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>;
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
#endif
