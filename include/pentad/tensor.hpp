// Distributed tensors and redistributions between layouts.
#pragma once

#include <pentad/tensor/any_tensor.hpp>
#include <pentad/tensor/box_messages.hpp>
#include <pentad/tensor/context.hpp>
#include <pentad/tensor/exchange.hpp>
#include <pentad/tensor/halo.hpp>
#include <pentad/tensor/mesh_bridge.hpp>
#include <pentad/tensor/mesh_edge.hpp>
#include <pentad/tensor/mesh_transfer.hpp>
#include <pentad/tensor/overlap.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/tensor/shard.hpp>
#include <pentad/tensor/stencil.hpp>
#include <pentad/tensor/tensor.hpp>
