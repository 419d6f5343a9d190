#include "engine/divergence.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/checkpoint/piece.h"

namespace trivet {

void Divergence::check_step(const StepResult& result) {
  any_step_ = true;
  if (std::isfinite(result.loss) && (result.skipped || std::isfinite(result.grad_norm))) return;
  const WeightHealth weights = inspect();
  if (weights.finite() && (result.skipped || std::isfinite(result.loss))) return;  // until there are too many
  std::string what = fmt::format("step {}: the loss is {}", last_step(), std::abs(result.loss));
  if (!result.skipped) what += " and the step was not skipped";
  if (!std::isfinite(result.grad_norm)) what += fmt::format(", its gradients have the norm {}", std::abs(result.grad_norm));
  throw lost(what, weights, "");
}

void Divergence::check_end(std::optional<double> evaluation) {
  if (!any_step_) return;  // nothing was done
  try {
    engine_.refuse_to_skip_for_ever();
  } catch (const NumericsError& error) {
    throw explained(error);
  }
  const std::string last = fmt::format("step {}, the last one", last_step());
  if (!loss_is_finite())
    throw explained(NumericsError(fmt::format("{}, was skipped: its loss is {}", last, std::abs(engine_.last_loss()))));
  const WeightHealth weights = inspect();
  if (evaluation && !std::isfinite(*evaluation))
    throw lost(fmt::format("the validation loss after {}, is {}", last, std::abs(*evaluation)), weights, "");
  if (!weights.finite()) throw lost("after " + last, weights, "");
}

NumericsError Divergence::explained(const NumericsError& error) {
  const WeightHealth weights = inspect();
  if (!weights.finite() || !loss_is_finite()) return lost(error.what(), weights, first_not_finite_tensor());
  return NumericsError(fmt::format("{}; the weights are finite and the loss was {:.4f}: only gradients overflowed; {}",
                                   error.what(), engine_.last_loss(), first_not_finite_tensor()));
}

// `found`: what the step done again showed; empty: it was not.
NumericsError Divergence::lost(const std::string& what, const WeightHealth& weights, const std::string& found) const {
  const std::string state =
      weights.finite() ? fmt::format("the weights are finite, but too large for a finite loss (the largest is {:.3g}, in {})",
                                     weights.largest, weights.largest_in)
                       : fmt::format("the weights are not finite any more: {}", weights.not_finite);
  return NumericsError(fmt::format("{}; {}; {}{}", what, state, found.empty() ? "" : found + "; ", way_back()));
}

WeightHealth Divergence::inspect() {
  const auto pieces = engine_.pieces_to_save();
  return inspect_weights(pieces, engine_.kernels(), ranks_);
}

std::string Divergence::first_not_finite_tensor() {
  const auto mine = engine_.search_last_step(last_microbatches_());
  std::optional<NotFinite> first;
  for (const std::string& text : ranks_.gather(mine ? to_text(*mine) : "")) {
    if (text.empty()) continue;
    const NotFinite found = parse_not_finite(text);
    if (!first || found < *first) first = found;
  }
  if (!first)
    return fmt::format("step {} done again: each microbatch is finite, the sum of their gradients is not", last_step());
  return fmt::format("step {} done again: the first tensor that is not finite is {}", last_step(), to_sentence(*first));
}

// Steps that were skipped changed nothing, so the step before them made these weights.
std::string Divergence::way_back() const {
  const Progress& progress = engine_.progress();
  return fmt::format("resume from a checkpoint before step {} with a lower optimizer.params.lr, with gradient_clipping{}",
                     std::max<int64_t>(progress.steps - progress.skipped_in_a_row, 1),
                     engine_.plan().config.bf16.check_grad_overflow ? "" : ", or with bf16.check_grad_overflow true");
}

}  // namespace trivet
