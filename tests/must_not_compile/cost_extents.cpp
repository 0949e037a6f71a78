// expect: pentad: one global extent for each dimension of the layout
#include <pentad/layout/cost.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

using Shard = Layout<f32, Dims<Dim<seq, 8, cp>, Dim<hidden, 4>>>;
constexpr Mesh<Axis<cp, 2>> mesh;
#ifdef PENTAD_WRONG
auto const cost = cost_of<Shard, whole_t<Shard>>(std::array<std::size_t, 1>{8}, mesh);
#else
auto const cost = cost_of<Shard, whole_t<Shard>>(std::array<std::size_t, 2>{8, 4}, mesh);
#endif
