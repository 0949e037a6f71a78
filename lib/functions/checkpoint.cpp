#define PENTAD_INLINE
#include <pentad/checkpoint/impl/folder.hpp>
#include <pentad/checkpoint/impl/manifest.hpp>
#include <pentad/checkpoint/impl/reader.hpp>
