// expect: pentad: the layouts have different elements
// expect: from f32\[seq@cp:8\] to bf16\[seq:8\]
#include <pentad/layout/ml.hpp>
#include <pentad/layout/plan.hpp>

using namespace pentad;
using namespace pentad::ml;

using From = Layout<f32, Dims<Dim<seq, 8, cp>>>;
#ifdef PENTAD_WRONG
using To = Layout<bf16, Dims<Dim<seq, 8>>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#else
using To = Layout<f32, Dims<Dim<seq, 8>>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#endif
