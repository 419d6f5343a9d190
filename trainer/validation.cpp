#include "trainer/validation.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "core/error.h"
#include "data/counted_targets.h"
#include "trainer/shown_predictions.h"
#include "trainer/stopwatch.h"

namespace trivet::trainer {

Validation::Validation(Run& run) : run_(run) {
  const TrainingConfig& training = run.config.training;
  if (!training.evaluates()) return;
  const bool by_steps = training.evaluate_every > 0;
  if (run.data->validation_digest().empty())
    throw DataError(ExitCode::Usage,
                    fmt::format("{}: training.{}: {} needs something to evaluate on; give data.validation or a "
                                "data.validation_fraction above 0, or use 0",
                                run.config.source, by_steps ? "evaluate_every" : "evaluate_every_epochs",
                                by_steps ? training.evaluate_every : training.evaluate_every_epochs));
  try {
    loader_.emplace(run.references.validation(), run.batches.layout().micro_batch, run.config.training.evaluate_samples);
    data::refuse_without_targets(*run.references.validation(), "validation", training.evaluate_samples);
  } catch (const DataError& error) {
    throw DataError(error.exit_code(), fmt::format("validation split: {}; {}, or do not evaluate (training.evaluate_every, "
                                                   "training.evaluate_every_epochs)",
                                                   error.what(),
                                                   run.config.data.validation.empty() ? "make data.validation_fraction larger"
                                                                                      : "name more data in data.validation"));
  }
}

bool Validation::is_due() const {
  const int64_t done = run_.steps_done(), every = run_.config.training.evaluate_every;
  if (!loader_ || done == 0) return false;
  return (every > 0 && done % every == 0) || done == run_.total_steps() ||
         data::completes_epoch(run_.batches.sampler(), done, run_.config.training.evaluate_every_epochs);
}

void Validation::after_step() {
  if (is_due() && evaluated_step_ != run_.steps_done()) evaluate();
}

bool Validation::make_up() {
  const bool missing = run_.evaluations.decides() && run_.evaluations.state().step < run_.steps_done();
  if (missing && run_.steps_done() < run_.total_steps()) after_step();
  return evaluated_step_ == run_.steps_done();
}

StepResult evaluate_on(const data::EvaluationLoader& loader, Run& run, Predictions* predictions) {
  const BatchLayout& layout = run.batches.layout();
  const int64_t rounds = (loader.batches() + layout.data_size - 1) / layout.data_size;
  data::HostMicrobatch batch;
  const auto next = [&](int64_t round) {
    loader.fill(round * layout.data_size + layout.data_rank, batch);
    return batch.view;
  };
  return run.engine.evaluate(rounds, next, predictions);
}

void Validation::evaluate() {
  const Stopwatch stopwatch;
  Predictions predictions(run_.engine.model().sample, loader_->samples());
  const StepResult result = evaluate_on(*loader_, run_, &predictions);
  evaluated_step_ = run_.steps_done();
  loss_ = result.targets > 0 ? std::optional(result.loss) : std::nullopt;
  // A step whose own loss is not finite is not saved, so it cannot be the best one.
  if (loss_)
    run_.evaluations.add(evaluated_step_, std::isfinite(run_.engine.last_loss()) ? *loss_ : NAN);
  else
    run_.evaluations.add_nothing(evaluated_step_);
  report(result, stopwatch.milliseconds());
  report_predictions(run_, predictions.kept());
}

void Validation::report(const StepResult& result, double ms) {
  run_.monitors.on_evaluation({.step = evaluated_step_,
                               .loss = result.loss,
                               .loss_bits = std::bit_cast<uint32_t>(static_cast<float>(result.loss)),
                               .samples = evaluated_step_ * run_.batches.layout().global_batch(),
                               .targets = result.targets,
                               .without_targets = result.targets == 0,
                               .correct = run_.counts_correct() ? std::optional(result.correct) : std::nullopt,
                               .rewards = run_.rewards_of(result),
                               .ms = ms});
}

std::optional<double> Validation::loss() const { return evaluated_step_ == run_.steps_done() ? loss_ : std::nullopt; }

}  // namespace trivet::trainer
