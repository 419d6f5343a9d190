// Decides when a training run ends because its numbers are lost, and what it reports then (NumericsError, exit code 16).
//
//   no target, step skipped         there is no loss to judge: training continues
//   loss finite, step skipped       only gradients overflowed, the weights are fine: training continues for
//                                   training.stop_after_skipped steps
//   loss not finite, step skipped   the run ends if the weights are not finite; otherwise it continues likewise
//   loss not finite, not skipped    the run ends, because its weights include that step
//   last step of the run            the loss and the weights must be finite
//   a signal ends the run, or
//   it has no step left to do       the weights must be finite
//
// All ranks know the same losses, so they make the same decision. Each rank's findings are gathered, so that all ranks
// report the same message.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/participants.h"
#include "core/error.h"
#include "engine/engine.h"
#include "engine/weight_health.h"

namespace trivet {

// Advises, with the config's keys, what to do if gradients are not finite again and again: "lower optimizer.params.lr
// or gradient_clipping". `updates`: how many steps were not skipped; before the first, no learning rate is at fault.
std::string cure_of_overflows(const Config& config, int64_t updates);

class Divergence {
 public:
  // `last_microbatches` returns those of the last step done. `ranks` are those of `engine`; nobody else may use them meanwhile.
  Divergence(Engine& engine, comm::Participants ranks, std::function<std::vector<Microbatch>()> last_microbatches)
      : engine_(engine), ranks_(std::move(ranks)), last_microbatches_(std::move(last_microbatches)) {}

  // After each step. Throws NumericsError when the weights are lost.
  void check_step(const StepResult& result);
  // After the last step. `evaluation`: the loss of the final weights, if it was computed.
  void check_end(std::optional<double> evaluation);
  // Checks the weights alone: for a run that ends before its last step, which may be skipping steps at the moment.
  void check_weights();
  // Checks whether the last step computed a finite loss. If not, the weights are not worth saving.
  bool loss_is_finite() const { return std::isfinite(engine_.last_loss()); }
  // Adds to the engine's error what can be found out: the state of the weights and the first tensor that was not finite.
  NumericsError explained(const NumericsError& error);

 private:
  NumericsError lost(const std::string& what, const WeightHealth& weights, const std::string& found) const;
  WeightHealth inspect();
  std::string first_not_finite_tensor();
  int64_t step_of_weights() const;
  std::string way_back() const;
  bool was_skipped() const { return engine_.progress().skipped_in_a_row > 0; }
  int64_t last_step() const { return engine_.progress().steps; }

  Engine& engine_;
  comm::Participants ranks_;
  std::function<std::vector<Microbatch>()> last_microbatches_;
  bool any_step_ = false;
};

}  // namespace trivet
