#define PENTAD_INLINE
#include <pentad/io/impl/file.hpp>
