#define PENTAD_KERNELS
#define PENTAD_KERNELS_F64 1
#include <pentad/kernels.hpp>
