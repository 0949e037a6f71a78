// Layouts of tensors on a mesh as types, the algebra on them, and the plan between two of them with its bytes. Needs
// neither MPI nor Kokkos.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/block.hpp>
#include <pentad/layout/compact.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/dimension.hpp>
#include <pentad/layout/documents.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/layout/exchange.hpp>
#include <pentad/layout/float8.hpp>
#include <pentad/layout/halo.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/layout/local_steps.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/partition.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/layout/relabel.hpp>
#include <pentad/layout/resharded.hpp>
#include <pentad/layout/step.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/layout/stretches.hpp>
#include <pentad/layout/text.hpp>
#include <pentad/layout/transfer.hpp>
#include <pentad/layout/validity.hpp>
#include <pentad/layout/zero_sharding.hpp>
