// expect: pentad: the input of a linear layer is still partial
// expect: f32\[seq:\?, hidden:\?\]\{tp: partial\} times f32\[ffn:\?, hidden:\?\]
#include <pentad/layers/contract.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using X = Layout<f32, Dims<Dim<seq>, Dim<hidden>>, Partial<tp>>;
using W = Layout<f32, Dims<Dim<ffn>, Dim<hidden>>>;
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
#else
using X = Layout<f32, Dims<Dim<seq>, Dim<hidden>>, Replicated<tp>>;
using W = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>;
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
#endif
