// What ends a training run whose numbers are lost, and what is said about it (NumericsError, exit code 16).
//
//   loss finite, step skipped       only gradients overflowed, the weights are fine: training goes on for
//                                   training.stop_after_skipped steps
//   loss not finite, step skipped   are the weights finite? If not the run ends, otherwise it goes on likewise
//   loss not finite, not skipped    the run ends: its weights took that step in
//   at the end of the run           its last loss and its weights must be finite
//   a run that a signal ends, or
//   that has no step left to do     its weights must be finite
//
// All ranks know the same losses, so they decide the same. What each finds out is gathered, so that all give the same message.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/checkpoint/participants.h"
#include "engine/engine.h"
#include "engine/weight_health.h"

namespace trivet {

class Divergence {
 public:
  // `last_microbatches`: those of the last step that was done. `ranks`: those of `engine`, used by nobody else meanwhile.
  Divergence(Engine& engine, checkpoint::Participants ranks, std::function<std::vector<Microbatch>()> last_microbatches)
      : engine_(engine), ranks_(std::move(ranks)), last_microbatches_(std::move(last_microbatches)) {}

  // After each step. Throws NumericsError when the weights are lost.
  void check_step(const StepResult& result);
  // After the last step. `evaluation`: the loss of the final weights where it was computed.
  void check_end(std::optional<double> evaluation);
  // The weights alone: for a run that ends before its last step, where steps may be skipped for a while yet.
  void check_weights();
  // Whether the last step computed a finite loss: other weights are not worth saving.
  bool loss_is_finite() const { return std::isfinite(engine_.last_loss()); }
  // The engine's error with what can be found out: how the weights are, and the first tensor that was not finite.
  NumericsError explained(const NumericsError& error);

 private:
  NumericsError lost(const std::string& what, const WeightHealth& weights, const std::string& found) const;
  WeightHealth inspect();
  std::string first_not_finite_tensor();
  std::string way_back() const;
  bool was_skipped() const { return engine_.progress().skipped_in_a_row > 0; }
  int64_t last_step() const { return engine_.progress().steps; }

  Engine& engine_;
  checkpoint::Participants ranks_;
  std::function<std::vector<Microbatch>()> last_microbatches_;
  bool any_step_ = false;
};

}  // namespace trivet
