// expect: pentad: one layout names an axis and the other a factor of it
// expect: from f32\[seq@tp:8\] to f32\[seq@outer\(tp\):8\]
#include <pentad/layout/ml.hpp>
#include <pentad/layout/plan.hpp>

using namespace pentad;
using namespace pentad::ml;

using From = Layout<f32, Dims<Dim<seq, 8, tp>>>;
#ifdef PENTAD_WRONG
using To = Layout<f32, Dims<Dim<seq, 8, outer<tp>>>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#else
using To = Layout<f32, Dims<Dim<seq, 8>>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#endif
