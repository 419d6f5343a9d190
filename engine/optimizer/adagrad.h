// Adagrad (kernels::Adagrad).
#pragma once

#include "engine/optimizer/update_rule.h"

namespace trivet {

class AdagradRule final : public UpdateRule {
 public:
  explicit AdagradRule(const RuleContext& context) : config_(context.config) {}
  void update(const UpdateSide& side, const Elements& elements, const StepScalars& scalars) override;

 private:
  const OptimizerConfig& config_;
};

}  // namespace trivet
