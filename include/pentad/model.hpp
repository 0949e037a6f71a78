// Descriptions of models: parts, blocks, published families and presets. Needs neither MPI nor Kokkos.
#pragma once

#include <pentad/model/attention_output.hpp>
#include <pentad/model/batch_shape.hpp>
#include <pentad/model/block_mesh.hpp>
#include <pentad/model/block_strategy.hpp>
#include <pentad/model/context_choice.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/model/family.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/model/mixers.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/offload.hpp>
#include <pentad/model/optimizer.hpp>
#include <pentad/model/parameter_count.hpp>
#include <pentad/model/part.hpp>
#include <pentad/model/part_ranks.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/precision.hpp>
#include <pentad/model/presets.hpp>
#include <pentad/model/recomputation.hpp>
#include <pentad/model/rotary.hpp>
#include <pentad/model/router.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/model/tensor_grid.hpp>
#include <pentad/model/tensor_kind.hpp>
