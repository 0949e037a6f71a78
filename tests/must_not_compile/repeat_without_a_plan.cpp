// expect: keeps the names and the order of the dimensions: from f32\[seq@cp:\?, ffn:\?\] to f32\[seq@cp:\?, hidden:\?\]
#include "map.hpp"

#ifdef PENTAD_WRONG
constexpr auto size = bytes<Repeat<Map<hidden, ffn>>>;
#else
constexpr auto size = bytes<Repeat<Sequence<Map<hidden, ffn>, Map<ffn, hidden>>>>;
#endif
