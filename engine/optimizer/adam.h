// Adam and AdamW (kernels::Adam).
#pragma once

#include "engine/optimizer/update_rule.h"
#include "kernels/optimizers.h"

namespace trivet {

// Updates by Adam that run together, in few launches.
class PendingAdam {
 public:
  void add(const UpdateSide& side, const Elements& elements, const StepScalars& scalars, Number lr,
           const OptimizerConfig& config);
  void run(const UpdateSide& side);

 private:
  std::vector<kernels::Adam> updates_;
};

class AdamRule final : public UpdateRule {
 public:
  explicit AdamRule(const RuleContext& context) : config_(context.config) {}
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;
  void run_pending(const UpdateSide& side) override { pending_.run(side); }

 private:
  const OptimizerConfig& config_;
  PendingAdam pending_;
};

}  // namespace trivet
