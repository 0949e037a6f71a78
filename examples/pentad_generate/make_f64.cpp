#include "instantiate.hpp"

template std::unique_ptr<pentad_generate::Writer> pentad_generate::make<pentad::f64>(WriterSetup const&);
