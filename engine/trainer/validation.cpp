#include "engine/trainer/validation.h"

#include <fmt/format.h>

#include <bit>

#include "core/error.h"
#include "engine/trainer/stopwatch.h"

namespace trivet::trainer {

Validation::Validation(Run& run) : run_(run) {
  if (run.config.training.evaluate_every == 0) return;
  if (run.data->validation_digest().empty())
    throw DataError(ExitCode::Usage,
                    fmt::format("{}: training.evaluate_every: {} needs something to evaluate on; give data.validation or a "
                                "data.validation_fraction above 0, or use 0",
                                run.config.source, run.config.training.evaluate_every));
  try {
    loader_.emplace(run.data->validation(), run.batches.layout().micro_batch, run.config.training.evaluate_samples);
  } catch (const DataError& error) {
    throw DataError(error.exit_code(), fmt::format("validation split: {}; make data.validation_fraction larger, or "
                                                   "set training.evaluate_every to 0",
                                                   error.what()));
  }
}

void Validation::after_step() {
  const int64_t done = run_.steps_done();
  if (loader_ && (done % run_.config.training.evaluate_every == 0 || done == run_.total_steps())) evaluate();
}

void Validation::evaluate() {
  const Stopwatch stopwatch;
  const data::BatchLayout& layout = run_.batches.layout();
  const int64_t rounds = (loader_->batches() + layout.data_size - 1) / layout.data_size;
  data::HostMicrobatch batch;
  const StepResult result = run_.engine.evaluate(rounds, [&](int64_t round) {
    loader_->fill(round * layout.data_size + layout.data_rank, batch);
    return batch.view;
  });
  evaluated_step_ = run_.steps_done();
  loss_ = result.loss;
  run_.monitors.on_evaluation({.step = evaluated_step_,
                               .loss = result.loss,
                               .loss_bits = std::bit_cast<uint32_t>(static_cast<float>(result.loss)),
                               .samples = evaluated_step_ * layout.global_batch(),
                               .targets = result.targets,
                               .correct = run_.counts_correct() ? std::optional(result.correct) : std::nullopt,
                               .ms = stopwatch.milliseconds()});
}

std::optional<double> Validation::loss() const {
  return evaluated_step_ == run_.steps_done() ? std::optional(loss_) : std::nullopt;
}

}  // namespace trivet::trainer
