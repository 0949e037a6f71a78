#define PENTAD_EXTERN
#include <pentad/memory/impl/copy.hpp>
#define PENTAD_INLINE
#include <pentad/memory/impl/shared_memory.hpp>
