// expect: from f32\[seq@cp:\?, hidden:\?\] to f32\[seq@cp:\?, ffn:\?\]
// expect: from f32\[seq@cp:\?, hidden:\?\] to f32\[seq@cp:\?, vocab:\?\]
#include "map.hpp"

#ifdef PENTAD_WRONG
constexpr auto size = bytes<Either<Map<ffn, hidden>, Map<vocab, hidden>>>;
#else
constexpr auto size = bytes<Either<Map<hidden, hidden>, Map<hidden, hidden>>>;
#endif
