#define PENTAD_INLINE
#include <pentad/memory/impl/shared_memory.hpp>
