#include "report/run_data.h"

#include <cmath>

namespace trivet::report {
namespace {

constexpr size_t kMostNotes = 500;

}  // namespace

void add(RunData& run, const StepPoint& step) {
  if (step.skipped) ++run.skipped_steps;
  if (step.without_targets) ++run.steps_without_targets;
  run.steps.add(step);
}

void add(RunData& run, const EvaluationPoint& evaluation) {
  if (evaluation.loss < run.best_validation_loss || (std::isnan(run.best_validation_loss) && std::isfinite(evaluation.loss))) {
    run.best_validation_loss = evaluation.loss;
    run.best_validation_step = evaluation.step;
  }
  if (evaluation.accuracy > run.best_accuracy || std::isnan(run.best_accuracy)) {
    run.best_accuracy = evaluation.accuracy;
    run.best_accuracy_step = evaluation.step;
  }
  run.evaluations.add(evaluation);
}

void add(RunData& run, Note note) {
  if (run.notes.size() == kMostNotes) run.notes.erase(run.notes.begin());
  run.notes.push_back(std::move(note));
}

}  // namespace trivet::report
