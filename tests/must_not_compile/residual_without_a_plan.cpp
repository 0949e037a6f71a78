// expect: keeps the names and the order of the dimensions: from f32\[seq@cp:\?, ffn:\?\] to f32\[seq@cp:\?, vocab:\?\]
// expect: keeps the names and the order of the dimensions: from f32\[seq@cp:\?, ffn:\?\] to f32\[seq@cp:\?, hidden:\?\]
#include "map.hpp"

#ifdef PENTAD_WRONG
constexpr auto size = bytes<Residual<Map<hidden, ffn>, Map<vocab, ffn>>>;
#else
constexpr auto size = bytes<Residual<Map<hidden, ffn>, Map<ffn, hidden>>>;
#endif
