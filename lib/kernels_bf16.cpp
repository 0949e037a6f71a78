#define PENTAD_KERNELS
#define PENTAD_KERNELS_BF16 1
#include "kernels.hpp"
