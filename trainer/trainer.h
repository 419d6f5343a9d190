// A complete training job, as `trivet train` runs it on each rank: data, model, plan, engine, resume, loop, evaluation,
// checkpoints and monitors. Only world rank 0 prints; the other ranks are silent unless something goes wrong.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/config/config.h"
#include "trainer/stop_request.h"

namespace trivet {

struct TrainOptions {
  int threads = 1;               // for the kernels of one rank
  int local_rank = -1;           // as in EngineOptions
  std::string metrics_file;      // JSON lines, one per step; empty: none
  bool resume = false;           // continue from the newest valid checkpoint of resume_directory (or start if there is none)
  std::string resume_directory;  // empty: checkpoint.directory; may also name one step, ".../step-00000200"
  // Weights to begin with, unless the run resumes: a model in Hugging Face's format, or a checkpoint of any run; empty: those
  // of model.from, or random ones.
  std::string init_from;
  std::string config_text;  // the resolved config as JSON, kept in checkpoints and in run.directory
  // Kept in run.directory: the command line, and the version of the program.
  std::vector<std::string> command;
  std::string version;
  std::optional<int> serve_port;  // port of the live page (report/live_run.h); 0: any free port; none: there is no page
  StopRequest* stop = nullptr;    // checked after each step; null on all ranks or on none
};

struct TrainEnd {
  int signal = 0;      // signal that ended the run early; 0: the run is complete
  bool early = false;  // complete because training.early_stopping_patience evaluations brought no improvement
};

// Throws what the engine throws, and NumericsError when the weights or the loss are not finite at the end. All ranks of the
// world call it with the same config.
TrainEnd train(const Config& config, comm::World& world, const TrainOptions& options);

}  // namespace trivet
