// expect: pentad: ZeRO stages 0 and 1 exist
#include <pentad/zero/stage.hpp>

using namespace pentad;

using Axes = AxisSet<dp, cp>;
#ifdef PENTAD_WRONG
using State = zero::Stage<2>::state<f32, Axes>;
#else
using State = zero::Stage<1>::state<f32, Axes>;
#endif
