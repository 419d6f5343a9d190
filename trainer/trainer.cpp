#include "trainer/trainer.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "core/error.h"
#include "engine/divergence.h"
#include "trainer/checkpoints.h"
#include "trainer/config_checks.h"
#include "trainer/initial_weights.h"
#include "trainer/recorded_steps.h"
#include "trainer/reports.h"
#include "trainer/resume.h"
#include "trainer/router_collapse.h"
#include "trainer/run.h"
#include "trainer/stop_agreement.h"
#include "trainer/stopwatch.h"
#include "trainer/validation.h"

namespace trivet {
namespace {

// The loop: steps, and what follows a step.
class TrainingLoop {
 public:
  TrainingLoop(trainer::Run& run, trainer::Validation& validation, trainer::Checkpoints& checkpoints, Divergence& divergence)
      : run_(run), validation_(validation), checkpoints_(checkpoints), divergence_(divergence) {}

  TrainEnd run(StopAgreement& stop, trainer::RecordedSteps& recorded) {
    save_last_step_of_memory();
    if (validation_.make_up() || !checkpoints_.is_on_disk()) save_best_step();
    while (!is_complete()) {
      recorded.before_step();
      train_step();
      recorded.after_step();
      const StopDecision asked = stop.after_step();
      const bool ends = asked.end_signal != 0;
      // If evaluations decide something, a checkpoint knows that of its own step. A run that a signal ends has no time for it.
      if (run_.evaluations.decides() && !ends) validation_.after_step();
      const bool last = is_complete();
      if (checkpoints_.is_due_in_memory() && divergence_.loss_is_finite()) checkpoints_.save_to_memory();
      if (checkpoints_.saves() && (checkpoints_.is_due() || asked.save || ends || last))
        save(last || ends ? checkpoint::OnFailure::End : checkpoint::OnFailure::Continue);
      if (ends && !last) return {.signal = asked.end_signal};
      validation_.after_step();
      if (ends) save_best_step();
    }
    return {.early = run_.steps_done() < run_.total_steps()};
  }

  // Reports both what is wrong with the numbers and that the last checkpoint was not written.
  void check_end(const TrainEnd& end) {
    std::exception_ptr not_saved;
    std::string and_not_written;
    try {
      checkpoints_.finish();
    } catch (const NumericsError&) {  // divergence_ says more about it below
      not_saved = std::current_exception();
    } catch (const CheckpointError& error) {
      not_saved = std::current_exception();
      and_not_written = fmt::format("; {}", error.what());
    }
    try {
      end.signal != 0 ? divergence_.check_weights() : divergence_.check_end(validation_.loss());
    } catch (const NumericsError& error) {
      throw NumericsError(error.what() + and_not_written);
    }
    if (not_saved) std::rethrow_exception(not_saved);
  }

 private:
  bool is_complete() const { return run_.steps_done() >= run_.total_steps() || run_.evaluations.is_out_of_patience(); }

  // The last step of a run that was lost before it was on disk, or damaged there.
  void save_last_step_of_memory() {
    if (!checkpoints_.memory() || !is_complete()) return;
    if (!checkpoints_.is_on_disk()) checkpoints_.save(checkpoint::OnFailure::End);
  }

  // If the step that was done last is the best, and its checkpoint does not say so or is in another directory.
  void save_best_step() {
    const int64_t done = run_.steps_done();
    if (done > 0 && checkpoints_.saves() && run_.evaluations.keeps(done)) save(checkpoint::OnFailure::Continue);
  }

  void train_step() {
    const trainer::Stopwatch stopwatch;
    const int64_t step = run_.steps_done();
    const double lr = run_.engine.learning_rate(), scale = run_.engine.loss_scale();
    if (const std::string news = run_.intake.before_step(step); !news.empty()) run_.monitors.on_note({"data", news});
    const std::vector<Microbatch> microbatches = run_.batches.fill(step);
    const StepResult result = train_batch(microbatches);
    const double ms = stopwatch.milliseconds();
    run_.monitors.on_step({.step = step + 1,
                           .loss = result.loss,
                           .loss_bits = std::bit_cast<uint32_t>(static_cast<float>(result.loss)),
                           .lr = lr,
                           .grad_norm = result.grad_norm,
                           .loss_scale = run_.config.fp16.enabled ? scale : 0,
                           .next_loss_scale = run_.config.fp16.enabled ? run_.engine.loss_scale() : 0,
                           .samples = (step + 1) * run_.batches.layout().global_batch(),
                           .targets = result.targets,
                           .tokens_read = tokens_read(microbatches),
                           .step_ms = ms,
                           .targets_per_second = static_cast<double>(result.targets) / ms * 1e3,
                           .memory_bytes = measured_memory(run_, checkpoints_).total(),
                           .skipped = result.skipped,
                           .without_targets = result.targets == 0,
                           .correct = run_.references.needed() ? std::optional(result.correct) : std::nullopt,
                           .rewards = run_.rewards_of(result),
                           .experts = result.experts});
    for (const std::string& warning : collapses_.look_at(step + 1, result.experts)) run_.monitors.on_note({"experts", warning});
    divergence_.check_step(result);  // after the report, so that the step is reported
  }

  // All ranks together in a step, whose rows have the same length on each.
  int64_t tokens_read(std::span<const Microbatch> microbatches) const {
    if (run_.target_words() != monitor::kTokens) return 0;
    return run_.batches.layout().global_batch() * microbatches.front().targets.shape.cols();
  }

  // If the step ends the run, the error explains why.
  StepResult train_batch(std::span<const Microbatch> microbatches) {
    try {
      return run_.engine.train_batch(microbatches);
    } catch (const NumericsError& error) {
      throw divergence_.explained(error);
    }
  }

  // A step whose loss is not finite has either left the weights unchanged or ruined them. Neither is worth saving, and once
  // saved they would be the newest checkpoint.
  void save(checkpoint::OnFailure on_failure) {
    if (divergence_.loss_is_finite()) {
      checkpoints_.save(on_failure);
      return run_.monitors.on_checkpoint(run_.steps_done());
    }
    if (run_.is_first_rank())
      run_.log.warning(
          fmt::format("step {} is not saved: its loss is {}", run_.steps_done(), std::abs(run_.engine.last_loss())));
  }

  trainer::Run& run_;
  trainer::Validation& validation_;
  trainer::Checkpoints& checkpoints_;
  Divergence& divergence_;
  RouterCollapse collapses_;
};

// A run that was to train and left its weights as they were has failed, however well each step was skipped.
void check_something_was_learned(const trainer::Run& run, const TrainEnd& end, int64_t steps_before) {
  const Progress& progress = run.engine.progress();
  if (end.signal != 0 || progress.steps == steps_before || progress.updates > 0) return;
  const int64_t steps = progress.steps;
  const std::string all = steps == 1 ? "the only step was" : fmt::format("all {} steps were", steps);
  const std::string what = fmt::format("{} skipped, so the weights are those of the beginning", all);
  if (progress.skipped_in_a_row == 0)
    throw DataError(ExitCode::Usage, fmt::format("{}: no sample that was read has a target to learn", what));
  const Config& config = run.engine.plan().config;
  throw NumericsError(fmt::format("{}: their gradients were not finite; {}{}", what,
                                  config.fp16.enabled ? "train for more steps, or " : "",
                                  cure_of_overflows(config, progress.updates)));
}

}  // namespace

TrainEnd train(const Config& config, comm::World& world, const TrainOptions& options) {
  trainer::check_complete(config);
  trainer::check_same_config(config, world, options);
  trainer::Run run(config, world, options);
  Divergence divergence(run.engine, comm::over_group(world.group()), [&run] { return run.batches.fill(run.steps_done() - 1); });
  trainer::Validation validation(run);
  trainer::Checkpoints checkpoints(run);
  const std::string resumed_from = trainer::resume_if_asked(run, checkpoints);
  const std::string weights_from = resumed_from.empty() ? trainer::load_initial_weights_if_asked(run) : "";
  const std::string reference = trainer::compute_references_if_needed(run);
  const std::string address = trainer::add_monitors(run);
  trainer::report_start(
      run, {.resumed_from = resumed_from, .weights_from = weights_from, .reference = reference, .address = address},
      checkpoints);
  trainer::RecordedSteps recorded(run);
  StopAgreement stop(options.stop, world.group());  // lives until all is saved: a request must not kill the last save
  TrainingLoop loop(run, validation, checkpoints, divergence);
  const int64_t steps_before = run.steps_done();
  const TrainEnd end = loop.run(stop, recorded);
  loop.check_end(end);
  recorded.at_end();
  checkpoints.remove_from_memory();
  trainer::report_end(run, end, checkpoints);
  check_something_was_learned(run, end, steps_before);
  return end;
}

}  // namespace trivet
