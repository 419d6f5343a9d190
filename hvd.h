// Horovod's interface for C++ programs (docs/horovod.md). Installed, it is #include <trivet/hvd.h>.
//
//   find_package(trivet 0.1 REQUIRED)
//   target_link_libraries(program PRIVATE trivet::hvd)
#pragma once

#include "hvd/callbacks.h"              // average of a metric, warm-up of the learning rate
#include "hvd/communicator.h"           // init, rank, allreduce, allgather, broadcast, join ...
#include "hvd/distributed_optimizer.h"  // averages gradients before each step of the user's optimizer
