#include "engine/divergence.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/checkpoint/piece.h"

namespace trivet {
namespace {

constexpr const char* kCureOfTheBeginning =
    "look at the weights that the run began with, and at what multiplies, such as model.lora.alpha and dpo.beta,";

// Returns the key that sets the scale at the start of a run.
const char* scale_key(const Config& config) {
  return config.fp16.loss_scale == 0 ? "fp16.initial_scale_power" : "fp16.loss_scale";
}

}  // namespace

void Divergence::check_step(const StepResult& result) {
  any_step_ = true;
  if (result.targets == 0) return;  // it computed nothing and changed nothing
  if (std::isfinite(result.loss) && (result.skipped || std::isfinite(result.grad_norm))) return;
  const WeightHealth weights = inspect();
  if (weights.finite() && (result.skipped || std::isfinite(result.loss))) return;  // until too many steps are skipped
  std::string what = fmt::format("step {}: the loss is {}", last_step(), std::abs(result.loss));
  if (!result.skipped) what += " and the step was not skipped";
  if (!std::isfinite(result.grad_norm)) what += fmt::format(", its gradients have the norm {}", std::abs(result.grad_norm));
  throw lost(what, weights, weights.finite() ? first_not_finite_tensor() : "");
}

void Divergence::check_weights() {
  const WeightHealth weights = inspect();
  if (!weights.finite()) throw lost(fmt::format("after step {}, the last one done", last_step()), weights, "");
}

void Divergence::check_end(std::optional<double> evaluation) {
  if (!any_step_) return check_weights();
  try {
    engine_.check_skipped_in_a_row();
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
  return NumericsError(fmt::format(
      "{}; the weights are finite and the loss was {:.4f}: only gradients overflowed; {}; {}{}", error.what(),
      engine_.last_loss(), first_not_finite_tensor(),
      step_of_weights() > 0 ? "you can resume from any checkpoint of this run; if that ends the same way, " : "", way_back()));
}

// `found`: what repeating the step showed; empty: it was not repeated.
NumericsError Divergence::lost(const std::string& what, const WeightHealth& weights, const std::string& found) const {
  const std::string state =
      weights.finite() ? fmt::format("the weights are finite, but too large for a finite loss (the largest is {:.3g}, in {})",
                                     weights.largest, weights.largest_in)
                       : fmt::format("the weights are no longer finite: {}", weights.not_finite);
  return NumericsError(fmt::format("{}; {}; {}{}", what, state, found.empty() ? "" : found + "; ", way_back()));
}

// If ranks that should hold equal weights do not, the training is not at fault: audit_weights() reports this and throws.
WeightHealth Divergence::inspect() {
  engine_.audit_weights();
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
  const std::string again =
      fmt::format("step {} was repeated{}", last_step(), was_skipped() ? "" : " with the weights that it produced");
  if (first) return fmt::format("{}: the first tensor that is not finite is {}", again, to_sentence(*first));
  return again +
         (was_skipped() ? ": each microbatch is finite, but the sum of their gradients is not" : ": all tensors are finite");
}

std::string cure_of_overflows(const Config& config, int64_t updates) {
  if (config.fp16.enabled) return std::string("lower ") + scale_key(config);
  if (updates == 0) return kCureOfTheBeginning;
  return config.gradient_clipping > 0 ? "lower optimizer.params.lr or gradient_clipping"
                                      : "lower optimizer.params.lr, or clip with gradient_clipping,";
}

// The step that produced the weights with which the last step computed what is not finite; 0: the run began with them. Skipped
// steps changed nothing. If a step was not skipped but its loss is not finite, that loss was computed with the weights of the
// step before it.
int64_t Divergence::step_of_weights() const {
  const Progress& progress = engine_.progress();
  const bool used_bad_weights = !was_skipped() && !loss_is_finite();
  return progress.steps - progress.skipped_in_a_row - (used_bad_weights ? 1 : 0);
}

std::string Divergence::way_back() const {
  const int64_t made_them = step_of_weights();
  const Config& config = engine_.plan().config;
  if (made_them <= 0)
    return fmt::format("no step had changed a weight before, so that no learning rate helps: {}{} and start over",
                       config.fp16.enabled ? fmt::format("lower {}, or ", scale_key(config)) : "", kCureOfTheBeginning);
  return fmt::format("{} with a lower optimizer.params.lr, with gradient_clipping{}",
                     made_them > 1 ? fmt::format("resume from a checkpoint before step {}", made_them) : "start over",
                     config.bf16.check_grad_overflow ? "" : ", or with bf16.check_grad_overflow true");
}

}  // namespace trivet
