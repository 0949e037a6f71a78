#define PENTAD_KERNELS
#define PENTAD_KERNELS_F32 1
#include <pentad/kernels.hpp>
