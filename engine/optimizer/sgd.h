// Stochastic gradient descent, with or without momentum (kernels::Sgd).
#pragma once

#include "engine/optimizer/update_rule.h"

namespace trivet {

class SgdRule final : public UpdateRule {
 public:
  explicit SgdRule(const RuleContext& context) : config_(context.config) {}
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;

 private:
  const OptimizerConfig& config_;
};

}  // namespace trivet
