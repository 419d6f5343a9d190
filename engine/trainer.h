// A whole training job, as `trivet train` runs it on each rank: data, model, plan, engine, resume, loop, evaluation,
// checkpoints, monitors. Rank 0 of the world speaks; the others are silent unless something is wrong.
#pragma once

#include <functional>
#include <string>

#include "comm/world.h"
#include "engine/config/config.h"

namespace trivet {

struct TrainOptions {
  int threads = 1;               // that the kernels of one rank may use
  int local_rank = -1;           // as in EngineOptions
  std::string metrics_file;      // JSON lines, one a step; empty: none
  bool resume = false;           // go on from the newest valid checkpoint of resume_directory (or start when there is none)
  std::string resume_directory;  // empty: checkpoint.directory; may also name one step, ".../step-00000200"
  std::string config_text;       // the resolved config as JSON, kept in checkpoints
};

// Throws what the engine throws. All ranks of the world call it with the same config.
void train(const Config& config, comm::World& world, const TrainOptions& options);

}  // namespace trivet
