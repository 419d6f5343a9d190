// Holds what all parts of a training run work with: the data, the engine, and where reports go.
#pragma once

#include <numeric>
#include <vector>

#include "comm/world.h"
#include "core/folder_claim.h"
#include "core/log.h"
#include "data/curriculum_sampler.h"
#include "data/training_data.h"
#include "engine/config/config.h"
#include "engine/engine.h"
#include "model/family.h"
#include "report/monitor/monitor.h"
#include "trainer/batches.h"
#include "trainer/evaluation_history.h"
#include "trainer/intake.h"
#include "trainer/pair_references.h"
#include "trainer/trainer.h"

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
  // Checks whether --resume continues from the directory that this run saves to.
  bool resumes_own() const;
  int64_t steps_done() const { return engine.progress().steps; }
  bool reads_images() const { return model::family_of(config.model.type).reads_images; }
  // Checks whether the model chooses classes, or the preferred one of two answers, so that choices can be correct.
  bool counts_correct() const { return reads_images() || references.needed(); }
  monitor::TargetWords target_words() const {
    return reads_images() ? monitor::kImages : references.needed() ? monitor::kPairs : monitor::kTokens;
  }
  // Returns the rewards of pairs of answers; none without pairs.
  std::optional<monitor::Rewards> rewards_of(const StepResult& result) const {
    if (!references.needed()) return {};
    return monitor::Rewards{result.chosen_reward, result.rejected_reward};
  }
  int64_t total_steps() const { return batches.total_steps(); }

  const Config& config;
  comm::World& world;
  const TrainOptions& options;
  std::unique_ptr<data::TrainingData> data;
  std::shared_ptr<const data::Admissions> admissions;  // null: the config does not choose samples by their difficulty
  PairReferences references;
  Engine engine;
  Batches batches;
  Intake intake;
  EvaluationHistory evaluations;
  Log log;
  std::unique_ptr<FolderClaim> folder_claim;  // on the first rank, for run.directory; outlives the monitors that write there
  monitor::Monitors monitors;                 // on the first rank (reports.h)
};

}  // namespace trivet::trainer
