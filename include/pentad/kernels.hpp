// Computation on one rank: products, attention, norms, activations, routing, optimizers.
#pragma once

#include <pentad/kernels/activation.hpp>
#include <pentad/kernels/adamw.hpp>
#include <pentad/kernels/attention.hpp>
#include <pentad/kernels/bias.hpp>
#include <pentad/kernels/causal_convolution.hpp>
#include <pentad/kernels/choices.hpp>
#include <pentad/kernels/chunk_scan.hpp>
#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/cross_entropy.hpp>
#include <pentad/kernels/dry.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/embedding.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/kernels/head_groups.hpp>
#include <pentad/kernels/layer_norm.hpp>
#include <pentad/kernels/lion.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/muon.hpp>
#include <pentad/kernels/norm.hpp>
#include <pentad/kernels/permute.hpp>
#include <pentad/kernels/rope.hpp>
#include <pentad/kernels/router.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/kernels/sgd.hpp>
#include <pentad/kernels/state_space.hpp>
