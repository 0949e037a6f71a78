// expect: from f32\[seq@cp:\?, ffn:\?\] to f32\[seq@cp:\?, hidden:\?\]
#include "map.hpp"

#ifdef PENTAD_WRONG
constexpr auto size = bytes<Either<Map<hidden, hidden>, Map<hidden, ffn>>>;
#else
constexpr auto size = bytes<Either<Map<hidden, hidden>, Sequence<Map<hidden, ffn>, Map<ffn, hidden>>>>;
#endif
