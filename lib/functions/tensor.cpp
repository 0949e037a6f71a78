#include <pentad/comm/ring.hpp>
#define PENTAD_EXTERN
#include <pentad/tensor/impl/redistribute.hpp>
