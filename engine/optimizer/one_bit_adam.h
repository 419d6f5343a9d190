// 1-bit Adam (Tang et al. 2021, arXiv:2102.02888), as DeepSpeed has it.
//
//   updates 1 to freeze_step   Adam without correction of the bias. Gradients are summed over the data ranks.
//   then                       v stays. Each rank adds its own gradient to the momentum, and the ranks average their momenta by
//                              signs with error feedback (zero::average_signs): gradients are not summed.
//
//   w -= lr (m / (sqrt(v) + eps) + decay w)
//
// Elements whose v is 0 at the end of the warm-up had no gradient in it; they are no longer updated, except for decay.
#pragma once

#include "engine/optimizer/adam.h"

namespace trivet {

class OneBitAdamRule final : public UpdateRule {
 public:
  explicit OneBitAdamRule(const RuleContext& context) : context_(context) {}
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;
  void run_pending(const UpdateSide& side) override { pending_.run(side); }
  void finish(const StepScalars& scalars) override;

 private:
  bool sends_signs(const StepScalars& scalars) const;

  RuleContext context_;
  PendingAdam pending_;
};

}  // namespace trivet
