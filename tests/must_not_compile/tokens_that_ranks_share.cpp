// expect: pentad: tokens go to experts from a layout in which each rank along dp, cp and tp has tokens of its own
#include <pentad/experts/tokens.hpp>

using namespace pentad;

#ifdef PENTAD_WRONG
constexpr bool is_dealt = (experts::detail::require_dealt<InvariantStream<f32>>(), true); // the ranks of tp share them
#else
constexpr bool is_dealt = (experts::detail::require_dealt<SequenceStream<f32>>(), true);
#endif
