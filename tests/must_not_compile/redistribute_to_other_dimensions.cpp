// expect: pentad: the layouts have different dimensions
// expect: from f32\[seq@cp:8\] to f32\[hidden:8\]
#include <pentad/layout/ml.hpp>
#include <pentad/layout/plan.hpp>

using namespace pentad;
using namespace pentad::ml;

using From = Layout<f32, Dims<Dim<seq, 8, cp>>>;
#ifdef PENTAD_WRONG
using To = Layout<f32, Dims<Dim<hidden, 8>>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#else
using To = Layout<f32, Dims<Dim<seq, 8>>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#endif
