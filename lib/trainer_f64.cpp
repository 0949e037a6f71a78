#include "compile.hpp"

PENTAD_COMPILE_TRAINER(f64)
