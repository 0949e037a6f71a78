// Layers whose collectives and gradient reductions follow from their layouts.
#pragma once

#include <pentad/layers/activation_memory.hpp>
#include <pentad/layers/attention.hpp>
#include <pentad/layers/bias.hpp>
#include <pentad/layers/causal_convolution.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/gated_norm.hpp>
#include <pentad/layers/latent_attention.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/layer_norm.hpp>
#include <pentad/layers/linear.hpp>
#include <pentad/layers/mamba2.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layers/positions.hpp>
#include <pentad/layers/projection.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/layers/rms_norm.hpp>
#include <pentad/layers/rotary.hpp>
#include <pentad/layers/rounded.hpp>
#include <pentad/layers/sequential.hpp>
#include <pentad/layers/stack.hpp>
#include <pentad/layers/state_scan.hpp>
#include <pentad/layers/stream_layer.hpp>
#include <pentad/layers/unit.hpp>
#include <pentad/layers/vocabulary.hpp>
