// Communicators of a mesh and collectives on views, blocking or started.
#pragma once

#include <pentad/comm/agreement.hpp>
#include <pentad/comm/axis_communicator.hpp>
#include <pentad/comm/box_exchange.hpp>
#include <pentad/comm/boxes.hpp>
#include <pentad/comm/broadcast_text.hpp>
#include <pentad/comm/choice.hpp>
#include <pentad/comm/collectives.hpp>
#include <pentad/comm/communicator.hpp>
#include <pentad/comm/end_job.hpp>
#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/first_failure.hpp>
#include <pentad/comm/network.hpp>
#include <pentad/comm/proc_line.hpp>
#include <pentad/comm/progress.hpp>
#include <pentad/comm/progress_thread.hpp>
#include <pentad/comm/request.hpp>
#include <pentad/comm/ring.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/comm/threads.hpp>
#include <pentad/comm/turns.hpp>
#include <pentad/comm/window.hpp>
