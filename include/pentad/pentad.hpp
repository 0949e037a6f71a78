// All of the library.
#pragma once

#include <pentad/checkpoint.hpp>
#include <pentad/comm.hpp>
#include <pentad/context.hpp>
#include <pentad/experts.hpp>
#include <pentad/io.hpp>
#include <pentad/kernels.hpp>
#include <pentad/layers.hpp>
#include <pentad/layout.hpp>
#include <pentad/memory.hpp>
#include <pentad/mesh.hpp>
#include <pentad/model.hpp>
#include <pentad/observe.hpp>
#include <pentad/pipeline.hpp>
#include <pentad/planner.hpp>
#include <pentad/product.hpp>
#include <pentad/program.hpp>
#include <pentad/random.hpp>
#include <pentad/report.hpp>
#include <pentad/strategy.hpp>
#include <pentad/tensor.hpp>
#include <pentad/train.hpp>
#include <pentad/zero.hpp>
