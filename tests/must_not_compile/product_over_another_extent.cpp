// expect: pentad: the input and the weight give a summed dimension two different extents
// expect: f32\[seq:\?, hidden:12\] times f32\[ffn:\?, hidden:16\]
#include <pentad/layers/contract.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

using X = Layout<f32, Dims<Dim<seq>, Dim<hidden, 12>>>;
#ifdef PENTAD_WRONG
using W = Layout<f32, Dims<Dim<ffn>, Dim<hidden, 16>>>;
#else
using W = Layout<f32, Dims<Dim<ffn>, Dim<hidden, 12>>>;
#endif
constexpr auto allowed = (require_multipliable<X, W, 1>(), true);
