// Products of distributed matrices.
#pragma once

#include <pentad/product/multiply.hpp>
#include <pentad/product/roles.hpp>
