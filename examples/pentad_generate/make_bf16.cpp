#include "instantiate.hpp"

template std::unique_ptr<pentad_generate::Writer> pentad_generate::make<pentad::bf16>(WriterSetup const&);
