// expect: pentad: seq = 1022 is not divisible by cp x tp = 4: change the extent or the mesh
#include <pentad/layout/ml.hpp>
#include <pentad/layout/validity.hpp>

using namespace pentad;
using namespace pentad::ml;

using M = Mesh<Axis<cp, 2>, Axis<tp, 2>>;
template <std::size_t Seq>
using Stream = Layout<f32, Dims<Dim<seq, Seq, cp, tp>, Dim<hidden, 512>>>;
#ifdef PENTAD_WRONG
constexpr auto fits = (require_fits_on<Stream<1022>, M>(), true);
#else
constexpr auto fits = (require_fits_on<Stream<1024>, M>(), true);
#endif
