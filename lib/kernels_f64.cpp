#define PENTAD_KERNELS
#define PENTAD_KERNELS_F64 1
#include "kernels.hpp"
