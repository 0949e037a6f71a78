// expect: pentad: the two layers of an Either give different layouts
// expect: f32\[seq@cp:\?, ffn:\?\] and f32\[seq@cp:\?, vocab:\?\]
#include "map.hpp"

#ifdef PENTAD_WRONG
constexpr auto size = bytes<Either<Map<hidden, ffn>, Map<hidden, vocab>>>;
#else
constexpr auto size = bytes<Either<Map<hidden, ffn>, Sequence<Map<hidden, vocab>, Map<vocab, ffn>>>>;
#endif
