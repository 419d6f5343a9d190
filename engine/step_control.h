// How far a run has come, and the numbers of its next step: counts, learning rate, loss scale. What an Engine and a
// ShardedOptimizer (embed/) have in common.
#pragma once

#include <cstdint>
#include <string>

#include "engine/checkpoint/run_state.h"
#include "engine/config/config.h"
#include "engine/optimizer/loss_scale.h"
#include "engine/optimizer/step_scalars.h"

namespace trivet {

// A checkpoint keeps it together with the weights and optimizer states.
struct Progress {
  int64_t steps = 0;             // done, including skipped ones; also the number of the next step and the data cursor
  int64_t updates = 0;           // steps not skipped; the optimizer and the learning-rate schedule count these
  int64_t skipped_in_a_row = 0;  // because of overflows; steps without targets do not count
};

class StepControl {
 public:
  // `config` must outlive it.
  StepControl(const Config& config, const ResolvedBatch& batch) : config_(config), batch_(batch), loss_scale_(config.fp16) {}

  const Progress& progress() const { return progress_; }
  double loss_scale() const { return loss_scale_.value(); }
  StepNumbers numbers() const;  // for the next step

  // Throws NumericsError when training.stop_after_skipped steps in a row were skipped. Called before a step rather than after
  // the last skipped one, so that each skipped step is reported first. The message ends with `advice`.
  void check_skipped_in_a_row(const std::string& advice) const;
  // After each step. A step without targets says nothing about gradients and the loss scale. Throws NumericsError when
  // gradients overflow and the scale cannot be lowered any further; the counts then include this step.
  void finish_step(bool skipped, bool without_targets);

  checkpoint::RunState state() const;
  // However many steps in a row were skipped before, at least one more is attempted, because it can succeed if the config is a
  // better one now.
  void restore(const checkpoint::RunState& state);

 private:
  const Config& config_;
  ResolvedBatch batch_;
  Progress progress_;
  LossScale loss_scale_;
};

}  // namespace trivet
