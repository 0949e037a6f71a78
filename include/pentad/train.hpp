// Language models on a mesh: training, export and import of weights, generation, and runs as the planner sees them.
#pragma once

#include <pentad/train/balance.hpp>
#include <pentad/train/batch.hpp>
#include <pentad/train/block_load.hpp>
#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/checkpoint_saver.hpp>
#include <pentad/train/checkpoint_sink.hpp>
#include <pentad/train/checkpoint_state.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/dry_parts.hpp>
#include <pentad/train/executor.hpp>
#include <pentad/train/export.hpp>
#include <pentad/train/import.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/train/machine.hpp>
#include <pentad/train/node_traffic.hpp>
#include <pentad/train/offloaded_activations.hpp>
#include <pentad/train/packing.hpp>
#include <pentad/train/part_account.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/predictor.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/train/sampler.hpp>
#include <pentad/train/schedules.hpp>
#include <pentad/train/stages.hpp>
#include <pentad/train/trainer.hpp>
