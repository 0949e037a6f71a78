// Meshes: named axes, their extents, and where a rank lies on them. Needs neither MPI nor Kokkos.
#pragma once

#include <pentad/mesh/axis.hpp>
#include <pentad/mesh/fold.hpp>
#include <pentad/mesh/hash.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/mesh/nearest_word.hpp>
#include <pentad/mesh/number.hpp>
#include <pentad/mesh/one_line.hpp>
#include <pentad/mesh/refusal.hpp>
#include <pentad/mesh/value_mesh.hpp>
