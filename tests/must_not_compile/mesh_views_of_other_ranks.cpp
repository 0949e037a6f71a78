// expect: pentad: two views of a mesh have the same ranks
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/fold.hpp>

using namespace pentad;
using namespace pentad::ml;

using Dense = Mesh<Axis<pp, 3>, Axis<dp, 4>, Axis<tp, 2>>;
template <std::size_t Copies>
using Experts = Mesh<Axis<edp, Copies>, Axis<ep, 4>>;
#ifdef PENTAD_WRONG
constexpr auto mesh = fold(Dense(), Experts<3>()); // 12 ranks of a stage's 8
#else
constexpr auto mesh = fold(Dense(), Experts<2>());
#endif
