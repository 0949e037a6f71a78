// expect: keeps the names and the order of the dimensions: from f32\[seq@cp:\?, ffn:\?\] to f32\[seq@cp:\?, vocab:\?\]
// expect: keeps the names and the order of the dimensions: from f32\[seq@cp:\?, hidden:\?\] to f32\[seq@cp:\?, ffn:\?\]
#include <pentad/layout/ml.hpp>

#include "map.hpp"

#ifdef PENTAD_WRONG
constexpr auto size = bytes<Sequential<Map<hidden, ffn>, Map<vocab, hidden>, Map<ffn, hidden>>>;
#else
constexpr auto size = bytes<Sequential<Map<hidden, ffn>, Map<ffn, hidden>, Map<hidden, vocab>>>;
#endif
