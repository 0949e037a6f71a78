// expect: pentad: the layout names an axis that the mesh does not have: f32\[seq@cp:1024, hidden:512\]
#include <pentad/layout/ml.hpp>
#include <pentad/layout/validity.hpp>

using namespace pentad;
using namespace pentad::ml;

using M = Mesh<Axis<dp, 2>, Axis<tp, 2>>;
template <class A>
using Stream = Layout<f32, Dims<Dim<seq, 1024, A>, Dim<hidden, 512>>>;
#ifdef PENTAD_WRONG
constexpr auto fits = (require_fits_on<Stream<cp>, M>(), true);
#else
constexpr auto fits = (require_fits_on<Stream<tp>, M>(), true);
#endif
