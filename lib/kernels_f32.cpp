#define PENTAD_KERNELS
#define PENTAD_KERNELS_F32 1
#include "kernels.hpp"
