// The evaluations of a run as far as they decide something: which step is the best so far (checkpoint.keep_best), and whether
// the run ends because later steps are no better (training.early_stopping_patience).
//
//   best          the lowest loss so far, by whatever difference
//   improvement   a loss lower than the best before it by more than the threshold, or the first loss of all
//
// These are the rules of Hugging Face's Trainer with EarlyStoppingCallback. A loss that is not finite is neither.
#pragma once

#include <cstdint>

#include "engine/checkpoint/run_state.h"
#include "engine/config/run_config.h"

namespace trivet::trainer {

class EvaluationHistory {
 public:
  EvaluationHistory(const TrainingConfig& training, bool keeps_best)
      : patience_(training.early_stopping_patience), threshold_(training.early_stopping_threshold), keeps_best_(keeps_best) {}

  // Checks whether evaluations decide anything.
  bool decides() const { return keeps_best_ || patience_ > 0; }
  void add(int64_t step, double loss);
  // An evaluation in which no target was counted has no loss, so it decides nothing.
  void add_nothing(int64_t step) { state_.step = step; }
  // Checks whether this step is to be kept as the best so far.
  bool keeps(int64_t step) const { return keeps_best_ && state_.best_step == step; }
  bool is_out_of_patience() const { return patience_ > 0 && state_.without_improvement >= patience_; }

  // Return and restore the state that a checkpoint keeps.
  const EvaluationState& state() const { return state_; }
  void restore(const EvaluationState& state) { state_ = state; }

 private:
  int64_t patience_;
  double threshold_;
  bool keeps_best_;
  EvaluationState state_;
};

}  // namespace trivet::trainer
