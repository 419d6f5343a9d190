// Evaluates the model on the validation data: every training.evaluate_every steps, every training.evaluate_every_epochs epochs,
// and after the last step.
#pragma once

#include <cstdint>
#include <optional>

#include "data/microbatch_loader.h"
#include "trainer/predictions.h"
#include "trainer/run.h"

namespace trivet::trainer {

// The loss of the current weights on these samples. Collective. `predictions` may be null.
StepResult evaluate_on(const data::EvaluationLoader& loader, Run& run, Predictions* predictions);

class Validation {
 public:
  // Throws DataError if the validation data is too short or has no target, so that this is known before the first step.
  explicit Validation(Run& run);

  // After each step; a second call after the same step does nothing. Collective when it evaluates, which all ranks do after the
  // same steps.
  void after_step();
  // When a run resumes: evaluates if that is due after the step that it continues from, decides something, and was not done
  // because a signal ended the run. Returns whether it evaluated. Collective.
  bool make_up();
  // The validation loss of the current weights, if it was computed.
  std::optional<double> loss() const;

 private:
  bool is_due() const;
  void evaluate();
  void report(const StepResult& result, double ms);

  Run& run_;
  std::optional<data::EvaluationLoader> loader_;  // if the run evaluates at all
  int64_t evaluated_step_ = 0;
  std::optional<double> loss_;  // after that step; none if no target was counted
};

}  // namespace trivet::trainer
