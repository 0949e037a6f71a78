#include "compile.hpp"

PENTAD_COMPILE_TRAINER(bf16)
