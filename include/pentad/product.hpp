// Products of distributed matrices.
#pragma once

#include <pentad/product/grid.hpp>
#include <pentad/product/multiply.hpp>
#include <pentad/product/on_grid.hpp>
#include <pentad/product/roles.hpp>
