// expect: pentad: a partial maximum, minimum or log-sum-exp can only be reduced
// expect: from f32\[seq:8\]\{tp: partial max\} to f32\[seq:8\]\{tp: partial\}
#include <pentad/layout/ml.hpp>
#include <pentad/layout/plan.hpp>

using namespace pentad;
using namespace pentad::ml;

using From = Layout<f32, Dims<Dim<seq, 8>>, PartialMax<tp>>;
#ifdef PENTAD_WRONG
using To = Layout<f32, Dims<Dim<seq, 8>>, Partial<tp>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#else
using To = Layout<f32, Dims<Dim<seq, 8>>>;
constexpr auto allowed = (require_redistributable<From, To>(), true);
#endif
