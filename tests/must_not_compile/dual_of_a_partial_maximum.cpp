// expect: pentad: a partial maximum, minimum or log-sum-exp has no dual
#include <pentad/layout/algebra.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

#ifdef PENTAD_WRONG
constexpr auto rank = dual_t<Layout<f32, Dims<Dim<seq>>, PartialMax<tp>>>::rank;
#else
constexpr auto rank = dual_t<Layout<f32, Dims<Dim<seq>>, Partial<tp>>>::rank;
#endif
