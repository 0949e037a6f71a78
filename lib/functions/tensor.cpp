#define PENTAD_EXTERN
#include <pentad/tensor/impl/redistribute.hpp>
