// expect: pentad: an axis enters and leaves a dimension at its minor end only
// expect: from f32\[seq@cp\.tp:8\] to f32\[seq@tp:8\]
#include <pentad/layout/plan.hpp>

using namespace pentad;

using From = Layout<f32, Dims<Dim<seq, 8, cp, tp>>>;
#ifdef PENTAD_WRONG
using To = Layout<f32, Dims<Dim<seq, 8, tp>>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#else
using To = Layout<f32, Dims<Dim<seq, 8, cp>>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#endif
