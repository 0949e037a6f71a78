#define PENTAD_INLINE
#include <pentad/strategy/impl/why_not.hpp>
