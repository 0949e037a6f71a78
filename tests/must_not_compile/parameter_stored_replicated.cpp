// expect: pentad: a parameter is stored sharded or invariant: not f32\[ffn@tp:\?, hidden:\?\]\{dp: replicated\}
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
using Stored = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>, Replicated<dp>>;
#else
using Stored = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>;
#endif
constexpr auto size = sizeof(Parameter<Stored, Stored, Kokkos::DefaultHostExecutionSpace>);
