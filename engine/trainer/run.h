// What all parts of a training run work with: the data, the engine, and where reports go.
#pragma once

#include <numeric>
#include <vector>

#include "comm/world.h"
#include "core/log.h"
#include "engine/config/config.h"
#include "engine/data/training_data.h"
#include "engine/engine.h"
#include "engine/monitor/monitor.h"
#include "engine/trainer.h"
#include "engine/trainer/batches.h"
#include "engine/trainer/evaluation_history.h"
#include "model/family.h"

namespace trivet::trainer {

inline std::vector<int> all_ranks(const comm::World& world) {
  std::vector<int> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

struct Run {
  // Collective: opens the data, compares it with that of the other ranks, and makes the engine.
  Run(const Config& run_config, comm::World& ranks, const TrainOptions& train_options);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  bool is_first_rank() const { return world.rank() == 0; }
  // --resume, and not from the steps of another run.
  // Whether --resume continues from the directory that this run saves to.
  bool resumes_own() const;
  int64_t steps_done() const { return engine.progress().steps; }
  // Whether the model chooses classes, so that some of its answers are correct.
  bool counts_correct() const { return model::family_of(config.model.type).reads_images; }
  int64_t total_steps() const { return batches.total_steps(); }

  const Config& config;
  comm::World& world;
  const TrainOptions& options;
  std::unique_ptr<data::TrainingData> data;
  Engine engine;
  Batches batches;
  EvaluationHistory evaluations;
  Log log;
  monitor::Monitors monitors;  // on the first rank (reports.h)
};

}  // namespace trivet::trainer
