// expect: pentad: x has no dimensions beside those that the weight takes
#include <pentad/layers/contract.hpp>

using namespace pentad;

using W = Layout<f32, Dims<Dim<ffn>, Dim<hidden>>>;
#ifdef PENTAD_WRONG
constexpr bool fits = Multipliable<Layout<f32, Dims<Dim<hidden>>>, W, 1>;
#else
constexpr bool fits = Multipliable<Layout<f32, Dims<Dim<seq>, Dim<hidden>>>, W, 1>;
#endif
