// Files: checkpoints, configurations, tokens, schedules, hardware. Needs JSON, neither MPI nor Kokkos.
#pragma once

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/checkpoint.hpp>
#include <pentad/io/checkpoint_writer.hpp>
#include <pentad/io/distinct_files.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/file_queue.hpp>
#include <pentad/io/hardware_file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/io/known_beginnings.hpp>
#include <pentad/io/line_file.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/io/npy.hpp>
#include <pentad/io/safetensors.hpp>
#include <pentad/io/schedule_file.hpp>
#include <pentad/io/scratch_file.hpp>
#include <pentad/io/strategy_file.hpp>
#include <pentad/io/temporaries.hpp>
#include <pentad/io/tensor_box.hpp>
#include <pentad/io/token_data.hpp>
#include <pentad/io/token_index.hpp>
