#include "engine/step_control.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "engine/optimizer/lr_schedule.h"

namespace trivet {

StepNumbers StepControl::numbers() const {
  const Betas betas = betas_at(config_.scheduler, config_.optimizer, progress_.updates);
  return {.seed = static_cast<uint64_t>(config_.training.seed),
          .step = progress_.steps,
          .update = progress_.updates + 1,
          .lr = lr_at(config_, batch_.train_batch_size, progress_.updates),
          .beta1 = betas.beta1,
          .beta2 = betas.beta2,
          .loss_scale = loss_scale_.value()};
}

void StepControl::check_skipped_in_a_row(const std::string& advice) const {
  const int64_t limit = config_.training.stop_after_skipped;
  if (loss_scale_.dynamic() || limit == 0 || progress_.skipped_in_a_row < limit) return;
  throw NumericsError(fmt::format("step {}: gradients were not finite {} times in a row (training.stop_after_skipped {}); {}",
                                  progress_.steps, progress_.skipped_in_a_row, limit, advice));
}

void StepControl::finish_step(bool skipped, bool without_targets) {
  ++progress_.steps;
  if (without_targets) return;
  if (skipped) {
    ++progress_.skipped_in_a_row;
  } else {
    ++progress_.updates;
    progress_.skipped_in_a_row = 0;
  }
  loss_scale_.update(skipped);
}

checkpoint::RunState StepControl::state() const {
  checkpoint::RunState state{.steps = progress_.steps,
                             .updates = progress_.updates,
                             .skipped_in_a_row = progress_.skipped_in_a_row,
                             .seed = config_.training.seed,
                             .train_batch_size = batch_.train_batch_size,
                             .micro_batch_size = batch_.micro_batch_size};
  if (loss_scale_.dynamic()) state.loss_scale = loss_scale_.state();
  return state;
}

void StepControl::restore(const checkpoint::RunState& state) {
  const int64_t limit = config_.training.stop_after_skipped;
  progress_ = {state.steps, state.updates, limit > 0 ? std::min(state.skipped_in_a_row, limit - 1) : state.skipped_in_a_row};
  if (state.loss_scale) loss_scale_.restore(*state.loss_scale);  // if absent, it was not an fp16 run: the config's scale stays
}

}  // namespace trivet
