// A whole training job, as `trivet train` runs it on each rank: data, model, plan, engine, resume, loop, evaluation,
// checkpoints, monitors. Rank 0 of the world speaks; the others are silent unless something is wrong.
#pragma once

#include <functional>
#include <string>

#include "comm/world.h"
#include "engine/config/config.h"
#include "engine/stop_request.h"

namespace trivet {

struct TrainOptions {
  int threads = 1;               // that the kernels of one rank may use
  int local_rank = -1;           // as in EngineOptions
  std::string metrics_file;      // JSON lines, one a step; empty: none
  bool resume = false;           // go on from the newest valid checkpoint of resume_directory (or start when there is none)
  std::string resume_directory;  // empty: checkpoint.directory; may also name one step, ".../step-00000200"
  std::string config_text;       // the resolved config as JSON, kept in checkpoints
  StopRequest* stop = nullptr;   // heeded after each step; null on all ranks or on none
};

struct TrainEnd {
  int signal = 0;  // that ended the run before its last step; 0: the run is complete
};

// Throws what the engine throws, and NumericsError when the weights or the loss at the end are not finite. All ranks of the
// world call it with the same config.
TrainEnd train(const Config& config, comm::World& world, const TrainOptions& options);

}  // namespace trivet
